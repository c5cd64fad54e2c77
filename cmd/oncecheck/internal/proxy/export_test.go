package proxy

import "bufio"

func ReadResponse(in *bufio.Reader, method string) (raw []byte, head int, interim bool, err error) {
	m, interim, err := readResponse(in, method)
	return m.raw, m.head, interim, err
}

func ReadRequest(in *bufio.Reader) (raw []byte, head int, err error) {
	m, err := readRequest(in, func() {})
	return m.raw, m.head, err
}
