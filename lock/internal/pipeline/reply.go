package pipeline

// The parser of the replies that go-redis returns unparsed (raw in exec.go). It has no state.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Reply is the reply to a command: null, a text, or the pair that claim.lua returns.
type Reply struct {
	Absent bool   // null: the key did not exist when Redis executed the command
	Text   []byte // what the key holds, or the head that a script has read from it
	Pair   bool   // this is a reply of claim.lua, which sets Fence or Left
	Fence  string // the fence of a claim that was granted, in decimal digits
	Left   int64  // the key's time to live in milliseconds; negative if it never expires
}

// ErrProtocol is the error of a reply that is not RESP, or not of the kind that the command returns.
var ErrProtocol = errors.New("lock: unexpected reply")

// errNoReply is the error of a command that has neither a reply nor an error.
var errNoReply = fmt.Errorf("%w: none", ErrProtocol)

// replyError is an error that Redis has sent. go-redis's functions treat it as one of their errors.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a redis.Error.
func (replyError) RedisError() {}

// isExpected reports whether callers of Send handle the error, so that go-redis need not see it.
func (e replyError) isExpected() bool {
	return strings.HasPrefix(string(e), "NOSCRIPT ") || strings.HasPrefix(string(e), "ERR syntax error")
}

// ParseReply parses a whole reply in RESP2 or RESP3: null, a text, or the pair of claim.lua. The texts are slices of
// raw. (https://redis.io/docs/latest/develop/reference/protocol-spec/)
func ParseReply(raw []byte) (Reply, error) {
	if len(raw) > 0 && raw[0] == '*' {
		return parsePair(raw)
	}
	v, rest, err := parseScalar(raw)
	switch {
	case err != nil:
		return Reply{}, err
	case len(rest) > 0:
		return Reply{}, fmt.Errorf("%w: %d bytes too many", ErrProtocol, len(rest))
	case v.null:
		return Reply{Absent: true}, nil
	case raw[0] == ':':
		return Reply{}, fmt.Errorf("%w: a number", ErrProtocol)
	}
	return Reply{Text: v.text}, nil
}

// parsePair parses an array of two: a text or null, and a text or number.
func parsePair(raw []byte) (Reply, error) {
	line, rest, err := cutLine(raw)
	if err != nil {
		return Reply{}, err
	}
	if string(line) != "*2" {
		return Reply{}, fmt.Errorf("%w: %.10q", ErrProtocol, line)
	}
	held, rest, err := parseScalar(rest)
	if err != nil {
		return Reply{}, err
	}
	more, rest, err := parseScalar(rest)
	if err != nil {
		return Reply{}, err
	}
	if len(rest) > 0 {
		return Reply{}, fmt.Errorf("%w: %d bytes too many", ErrProtocol, len(rest))
	}
	if held.text == nil && !held.null {
		return Reply{}, fmt.Errorf("%w: a pair that begins with a number", ErrProtocol)
	}
	return Reply{Pair: true, Absent: held.null, Text: held.text, Fence: string(more.text), Left: more.number}, nil
}

// scalar is a null, text or number of RESP.
type scalar struct {
	null   bool
	text   []byte
	number int64
}

// parseScalar parses the scalar that raw begins with, and returns what follows it. An error reply is a replyError.
func parseScalar(raw []byte) (v scalar, rest []byte, err error) {
	line, rest, err := cutLine(raw)
	if err != nil {
		return scalar{}, nil, err
	}
	switch kind, line := line[0], line[1:]; kind {
	case '_':
		return scalar{null: true}, rest, nil
	case '+':
		return scalar{text: line}, rest, nil
	case '-':
		return scalar{}, nil, replyError(line)
	case ':':
		v.number, err = strconv.ParseInt(string(line), 10, 64)
		if err != nil {
			return scalar{}, nil, fmt.Errorf("%w: :%.20q", ErrProtocol, line)
		}
		return v, rest, nil
	case '$':
		return parseBulk(line, rest)
	}
	return scalar{}, nil, fmt.Errorf("%w: %.20q", ErrProtocol, line)
}

// parseBulk parses a text or null. length is the line before it, without the $.
func parseBulk(length, rest []byte) (scalar, []byte, error) {
	n, err := strconv.Atoi(string(length))
	switch {
	case err != nil || n < -1:
		return scalar{}, nil, fmt.Errorf("%w: $%.20q", ErrProtocol, length)
	case n == -1:
		return scalar{null: true}, rest, nil
	case len(rest)-2 < n || rest[n] != '\r' || rest[n+1] != '\n':
		return scalar{}, nil, fmt.Errorf("%w: a text of %d bytes is cut", ErrProtocol, n)
	}
	return scalar{text: rest[:n:n]}, rest[n+2:], nil
}

// cutLine returns the first line, which must not be empty, and what follows it.
func cutLine(raw []byte) (line, rest []byte, err error) {
	line, rest, ok := bytes.Cut(raw, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, nil, fmt.Errorf("%w: %.20q", ErrProtocol, raw)
	}
	return line, rest, nil
}
