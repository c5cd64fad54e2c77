package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// message is an HTTP/1.1 message as it came over the wire, byte for byte.
type message struct {
	raw  []byte
	head int // how many bytes of raw are the start line, the header and the empty line
}

func (m message) body() []byte { return m.raw[m.head:] }

// maxMessage limits what the proxy holds of one message.
const maxMessage = 64 << 20

var (
	errTooLarge = errors.New("the message has more than 64 MiB")
	errFolded   = errors.New("a header field has a second line, which is obsolete (RFC 9112, section 5.2)")
)

// readRequest reads a request. It calls onExpect when the head is there and the client waits for 100 Continue.
func readRequest(in *bufio.Reader, onExpect func()) (message, error) {
	m, header, err := readHead(in)
	if err != nil {
		return m, err
	}
	if strings.EqualFold(header.Get("Expect"), "100-continue") {
		onExpect()
	}
	return m, m.readBody(in, header, false)
}

// readResponse reads a response to a request with the method. An interim response (1xx) is one of its own.
func readResponse(in *bufio.Reader, method string) (m message, interim bool, err error) {
	m, header, err := readHead(in)
	if err != nil {
		return m, false, err
	}
	status, err := m.status()
	switch {
	case err != nil:
		return m, false, err
	case status < 200:
		return m, true, nil
	case method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified:
		return m, false, nil
	}
	return m, false, m.readBody(in, header, true)
}

// method returns the method of a request.
func (m message) method() string {
	method, _, _ := strings.Cut(string(m.raw[:m.head]), " ")
	return method
}

// status returns the status of a response.
func (m message) status() (int, error) {
	line, _, _ := strings.Cut(string(m.raw[:m.head]), "\r\n")
	fields := strings.SplitN(line, " ", 3)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/1.") {
		return 0, fmt.Errorf("%.40q is no status line", line)
	}
	status, err := strconv.Atoi(fields[1])
	if err != nil || status < 100 || status > 999 {
		return 0, fmt.Errorf("%.40q is no status line", line)
	}
	return status, nil
}

// readHead reads up to the empty line.
func readHead(in *bufio.Reader) (message, http.Header, error) {
	var m message
	header := http.Header{}
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		m.raw = append(m.raw, line...)
		m.head = len(m.raw)
		switch {
		case err != nil:
			return m, nil, fmt.Errorf("the head broke off: %w", err)
		case len(m.raw) > 1<<20:
			return m, nil, errTooLarge
		case line[0] == ' ', line[0] == '\t':
			return m, nil, errFolded
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" && !first {
			return m, header, nil
		}
		if name, value, ok := strings.Cut(text, ":"); ok && !first {
			header.Add(name, strings.TrimSpace(value))
		}
	}
}

// readBody reads the body that the header announces. Without an announcement a response lasts until the connection ends,
// and a request has no body.
func (m *message) readBody(in *bufio.Reader, header http.Header, response bool) error {
	if codings := header.Values("Transfer-Encoding"); len(codings) > 0 {
		if !strings.EqualFold(strings.TrimSpace(codings[len(codings)-1]), "chunked") {
			return fmt.Errorf("transfer coding %q is not known", codings)
		}
		return m.readChunks(in)
	}
	if length := header.Get("Content-Length"); length != "" {
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("Content-Length %.40q is no length", length)
		}
		return m.take(in, n)
	}
	if !response {
		return nil
	}
	rest, err := io.ReadAll(io.LimitReader(in, maxMessage+1))
	m.raw = append(m.raw, rest...)
	if len(rest) > maxMessage {
		return errTooLarge
	}
	return err
}

// readChunks reads a chunked body with its trailers.
func (m *message) readChunks(in *bufio.Reader) error {
	for {
		line, err := m.line(in)
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(size)), 16, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%.40q is no size of a chunk", line)
		}
		if n == 0 {
			break
		}
		if err := m.take(in, n); err != nil {
			return err
		}
		if end, err := m.line(in); err != nil || len(end) > 0 {
			return errors.Join(err, errors.New("a chunk does not end where it should"))
		}
	}
	for {
		if trailer, err := m.line(in); err != nil || len(trailer) == 0 {
			return err
		}
	}
}

// line takes a line and returns it without its end.
func (m *message) line(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	m.raw = append(m.raw, line...)
	switch {
	case err != nil:
		return nil, err
	case len(m.raw) > maxMessage:
		return nil, errTooLarge
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// take takes n bytes.
func (m *message) take(in *bufio.Reader, n int64) error {
	if n > maxMessage-int64(len(m.raw)) {
		return errTooLarge
	}
	var b bytes.Buffer // which grows with what comes, not with what is announced
	_, err := io.CopyN(&b, in, n)
	m.raw = append(m.raw, b.Bytes()...)
	return err
}
