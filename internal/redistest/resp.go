package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
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

// splitter cuts a stream of RESP2 or RESP3 (redis.io/docs, "Redis serialization protocol specification") into frames:
// a frame is one command or one reply. It validates no more than that needs: it does not check that ":x" is a number. It
// does not support inline commands and streamed types ("$?"), which Redis clients and servers do not send.
type splitter struct {
	in    *bufio.Reader
	raw   []byte   // the frame so far
	bulks [][]byte // its bulk strings
}

func newSplitter(r io.Reader) *splitter { return &splitter{in: bufio.NewReaderSize(r, 64<<10)} }

// buffered reports whether the start of the next frame has been read.
func (s *splitter) buffered() bool { return s.in.Buffered() > 0 }

// command reads an array of bulk strings. The error is io.EOF at the end of the stream, or wraps errProtocol.
func (s *splitter) command() (Command, error) {
	s.raw, s.bulks = nil, nil
	kind, n, err := s.value()
	if err == nil && (kind != '*' || n < 1 || len(s.bulks) != n) {
		err = fmt.Errorf("%w: a command is an array of bulk strings", errProtocol)
	}
	if err != nil {
		return Command{}, err
	}
	return Command{Name: strings.ToUpper(string(s.bulks[0])), Args: s.bulks[1:], raw: s.raw}, nil
}

// reply reads one reply. Its errors are those of command.
func (s *splitter) reply() (r reply, err error) {
	s.raw, s.bulks = nil, nil
	r.kind, _, err = s.value()
	if len(s.bulks) > 0 {
		r.word = string(s.bulks[0])
	}
	r.raw = s.raw
	return r, err
}

// value reads one value with all that it contains. n is the number of its elements.
func (s *splitter) value() (kind byte, n int, err error) {
	line, err := s.in.ReadBytes('\n')
	if err == io.EOF && len(s.raw)+len(line) > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, 0, err
	}
	s.raw = append(s.raw, line...)
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, 0, fmt.Errorf("%w: line %q", errProtocol, line)
	}
	kind = line[0]
	if strings.IndexByte("$!=*~>%|", kind) >= 0 {
		if n, err = strconv.Atoi(string(line[1 : len(line)-2])); err != nil {
			return 0, 0, fmt.Errorf("%w: length %q", errProtocol, line)
		}
	}
	switch kind {
	case '+', '-', ':', ',', '#', '(', '_':
	case '$', '!', '=':
		if n < 0 {
			break
		}
		payload := make([]byte, n+2)
		if _, err := io.ReadFull(s.in, payload); err != nil {
			return 0, 0, io.ErrUnexpectedEOF
		}
		s.raw, s.bulks = append(s.raw, payload...), append(s.bulks, payload[:n:n])
	case '*', '~', '>':
		err = s.values(n)
	case '%':
		err = s.values(2 * n)
	case '|': // the attributes of the value after them
		if err = s.values(2 * n); err == nil {
			s.bulks = nil
			return s.value()
		}
	default:
		err = fmt.Errorf("%w: type %q", errProtocol, kind)
	}
	return kind, n, err
}

func (s *splitter) values(n int) (err error) {
	for ; n > 0 && err == nil; n-- {
		_, _, err = s.value()
	}
	return err
}
