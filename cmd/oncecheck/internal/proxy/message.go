package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
)

// message is an HTTP/1.1 message as it came over the wire, byte for byte.
type message struct {
	raw  []byte
	head int // how many bytes of raw are the start line, the header and the empty line
}

func (m message) body() []byte { return m.raw[m.head:] }

// Limits of one message, which the proxy keeps whole.
const (
	maxHead    = 1 << 20
	maxMessage = 16 << 20
)

// ErrTooLarge means that a message was longer than the proxy can hold: 16 MiB, or 1 MiB of header.
var ErrTooLarge = errors.New("a message has more than 16 MiB, or a head of more than 1 MiB")

// recorder keeps what is read through it, up to a limit.
type recorder struct {
	from  io.Reader
	raw   []byte
	limit int
}

// Read reads from the source. At the limit it fails.
func (r *recorder) Read(p []byte) (int, error) {
	if len(r.raw) == r.limit {
		return 0, ErrTooLarge
	}
	n, err := r.from.Read(p[:min(len(p), r.limit-len(r.raw))])
	r.raw = append(r.raw, p[:n]...)
	return n, err
}

// reader takes messages off a connection.
type reader struct {
	recorder
	buffered *bufio.Reader
	begin    int // of the message in raw
}

func newReader(from io.Reader) *reader {
	r := &reader{recorder: recorder{from: from, limit: maxHead}}
	r.buffered = bufio.NewReader(&r.recorder)
	return r
}

// taken returns what has been taken of the message so far.
func (r *reader) taken() []byte { return r.raw[r.begin : len(r.raw)-r.buffered.Buffered()] }

// rest takes the body of a message whose head has been taken.
func (r *reader) rest(body io.Reader) (message, error) {
	head := len(r.taken())
	r.limit = maxMessage
	_, err := io.Copy(io.Discard, body)
	return message{r.taken(), head}, err
}

// request takes a request. It calls onExpect when the head is there and the client waits for 100 Continue.
func (r *reader) request(onExpect func()) (m message, method string, err error) {
	request, err := http.ReadRequest(r.buffered)
	if err != nil {
		return message{}, "", err
	}
	if request.Header.Get("Expect") == "100-continue" {
		onExpect()
	}
	m, err = r.rest(request.Body)
	return m, request.Method, err
}

// response takes the final response to a request with the method. The interim ones (1xx) before it are dropped.
func (r *reader) response(method string) (message, error) {
	for {
		response, err := http.ReadResponse(r.buffered, &http.Request{Method: method})
		if err != nil {
			return message{}, err
		}
		if response.StatusCode >= 200 {
			return r.rest(response.Body)
		}
		r.begin += len(r.taken())
	}
}
