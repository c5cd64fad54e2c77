package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Bounds of a frame, which is one command or one reply. The memory for a frame grows with the bytes that have arrived,
// never with an announced length.
const (
	maxLine     = 64 << 10
	maxFrame    = 64 << 20
	maxElements = 1 << 20
)

var errProtocol = errors.New("not RESP")

// Command is a command that a client sent.
type Command struct {
	Name string   // in upper case; "CLIENT" for "CLIENT SETINFO"
	Args [][]byte // without the name; read only

	raw []byte
}

// String returns the name and the quoted arguments.
func (c Command) String() string {
	var b strings.Builder
	b.WriteString(c.Name)
	for _, arg := range c.Args {
		fmt.Fprintf(&b, " %q", arg)
	}
	return b.String()
}

// reply is a complete reply or push message of a server, with the attributes that precede it.
type reply struct {
	kind byte
	word string // the first element of an array or push, if that is a bulk string
	raw  []byte
}

// splitter cuts a stream of RESP2 or RESP3 (redis.io/docs, "Redis serialization protocol specification") into frames.
// It validates no more than that needs: it does not check that ":x" is a number. It does not support inline commands
// and streamed types ("$?"), which Redis clients and servers do not send.
type splitter struct {
	in  *bufio.Reader
	raw bytes.Buffer // the frame so far
}

func newSplitter(r io.Reader) *splitter {
	return &splitter{in: bufio.NewReaderSize(r, maxLine)}
}

// buffered reports whether the start of the next frame has been read.
func (s *splitter) buffered() bool { return s.in.Buffered() > 0 }

// command reads an array of bulk strings. The error is io.EOF at the end of the stream, io.ErrUnexpectedEOF within a
// command, or wraps errProtocol.
func (s *splitter) command() (Command, error) {
	s.raw = bytes.Buffer{}
	kind, n, err := s.value()
	if err != nil {
		return Command{}, err
	}
	if kind != '*' || n < 1 || n > maxElements {
		return Command{}, fmt.Errorf("%w: a command is an array of bulk strings", errProtocol)
	}
	var ends []int // end of each payload in raw
	var sizes []int
	for range n {
		kind, size, err := s.value()
		if err != nil {
			return Command{}, midFrame(err)
		}
		if kind != '$' || size < 0 {
			return Command{}, fmt.Errorf("%w: a command is an array of bulk strings", errProtocol)
		}
		ends = append(ends, s.raw.Len()-len("\r\n"))
		sizes = append(sizes, size)
	}
	raw := s.raw.Bytes()
	words := make([][]byte, n)
	for i, end := range ends {
		words[i] = raw[end-sizes[i] : end : end]
	}
	return Command{Name: strings.ToUpper(string(words[0])), Args: words[1:], raw: raw}, nil
}

// reply reads one reply. Its errors are those of command.
func (s *splitter) reply() (reply, error) {
	s.raw = bytes.Buffer{}
	kind, n, err := s.value()
	for err == nil && kind == '|' {
		if err = midFrame(s.values(2 * n)); err == nil {
			kind, n, err = s.value()
			err = midFrame(err)
		}
	}
	if err != nil {
		return reply{}, err
	}
	head := s.raw.Len()
	if err := s.values(children(kind, n)); err != nil {
		return reply{}, midFrame(err)
	}
	r := reply{kind: kind, raw: s.raw.Bytes()}
	if kind == '*' || kind == '>' {
		r.word = leadingWord(r.raw[head:])
	}
	return r, nil
}

// values reads n values and all that they contain. It counts instead of recursing, so that depth needs no stack.
func (s *splitter) values(n int) error {
	for n > 0 {
		kind, size, err := s.value()
		if err != nil {
			return err
		}
		n += children(kind, size) - 1
		if kind == '|' {
			n += 2*size + 1 // an attribute's pairs, and the value after it
		}
		if n > maxElements {
			return fmt.Errorf("%w: more than %d elements", errProtocol, maxElements)
		}
	}
	return nil
}

// children returns the number of values that follow the head of an aggregate.
func children(kind byte, size int) int {
	switch kind {
	case '*', '~', '>':
		return max(size, 0)
	case '%':
		return 2 * size
	default:
		return 0
	}
}

// value reads one value, or only the head of an aggregate. The size is the length of a bulk string or the number of
// elements of an aggregate, -1 for a RESP2 null.
func (s *splitter) value() (kind byte, size int, err error) {
	line, err := s.line()
	if err != nil {
		return 0, 0, err
	}
	kind, rest := line[0], string(line[1:])
	switch kind {
	case '+', '-', ':', ',', '#', '(', '_':
		return kind, 0, nil
	case '$', '!', '=', '*', '~', '>', '%', '|':
	default:
		return 0, 0, fmt.Errorf("%w: type %q", errProtocol, kind)
	}
	if rest == "-1" && (kind == '$' || kind == '*') {
		return kind, -1, nil
	}
	n, err := strconv.ParseUint(rest, 10, 31)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: length %q", errProtocol, rest)
	}
	size = int(n)
	if kind == '$' || kind == '!' || kind == '=' {
		return kind, size, s.payload(size)
	}
	if size > maxElements {
		return 0, 0, fmt.Errorf("%w: more than %d elements", errProtocol, maxElements)
	}
	return kind, size, nil
}

// line reads up to CRLF and returns the text before it, which has at least one byte and is valid until the next read.
func (s *splitter) line() ([]byte, error) {
	line, err := s.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("%w: a line over %d bytes", errProtocol, maxLine)
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || len(text) == 0 {
		return nil, fmt.Errorf("%w: line %q", errProtocol, line)
	}
	if s.raw.Len()+len(line) > maxFrame {
		return nil, errTooLarge()
	}
	s.raw.Write(line)
	return text, nil
}

// payload reads a bulk string's bytes and the CRLF after them.
func (s *splitter) payload(size int) error {
	if size > maxFrame-s.raw.Len() {
		return errTooLarge()
	}
	if _, err := io.CopyN(&s.raw, s.in, int64(size)+2); err != nil {
		return midFrame(err)
	}
	if !bytes.HasSuffix(s.raw.Bytes(), []byte("\r\n")) {
		return fmt.Errorf("%w: a bulk string longer than its length", errProtocol)
	}
	return nil
}

// leadingWord returns the bulk string at the start of b, if any.
func leadingWord(b []byte) string {
	head, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || head[0] != '$' {
		return ""
	}
	n, err := strconv.Atoi(string(head[1:]))
	if err != nil || n < 0 {
		return ""
	}
	return string(rest[:n])
}

// midFrame converts io.EOF within a frame to io.ErrUnexpectedEOF.
func midFrame(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func errTooLarge() error { return fmt.Errorf("%w: a frame over %d bytes", errProtocol, maxFrame) }
