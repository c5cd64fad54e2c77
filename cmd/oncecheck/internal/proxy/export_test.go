package proxy

import "io"

func ReadResponse(in io.Reader, method string) (raw []byte, head int, err error) {
	m, err := newReader(in).response(method)
	return m.raw, m.head, err
}

func ReadRequest(in io.Reader) (raw []byte, head int, err error) {
	m, _, err := newReader(in).request(func() {})
	return m.raw, m.head, err
}
