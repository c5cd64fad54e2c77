package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Reply is what Redis answers to a command: nothing, a text, or the pair that claim.lua returns.
type Reply struct {
	Absent bool   // nothing: there is no key, or was none
	Text   []byte // what the key holds, or the head that a script has found there
	Pair   bool   // it is the reply of claim.lua, with one of the next two
	Fence  string // the number of a claim that was granted
	Left   int64  // how long the key will last, in milliseconds, negative if for ever
}

// ErrProtocol says that what a server has sent is not RESP, or not what was asked for.
var ErrProtocol = errors.New("lock: unexpected reply")

// errNoReply says that a command has neither a reply nor an error.
var errNoReply = fmt.Errorf("%w: none", ErrProtocol)

// replyError is an error that the server has sent, as go-redis's own.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a redis.Error.
func (replyError) RedisError() {}

// isExpected reports whether the caller handles it without go-redis.
func (e replyError) isExpected() bool {
	return strings.HasPrefix(string(e), "NOSCRIPT ") || strings.HasPrefix(string(e), "ERR syntax error")
}

// ParseReply reads a whole reply in RESP2 or RESP3: nothing, a text, or the pair of claim.lua. The texts are a part of
// raw. (https://redis.io/docs/latest/develop/reference/protocol-spec/)
func ParseReply(raw []byte) (Reply, error) {
	if len(raw) > 0 && raw[0] == '*' {
		return parsePair(raw)
	}
	v, rest, err := parseValue(raw)
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

func parsePair(raw []byte) (Reply, error) {
	line, rest, err := cutLine(raw)
	if err != nil {
		return Reply{}, err
	}
	if string(line) != "*2" {
		return Reply{}, fmt.Errorf("%w: %.10q", ErrProtocol, line)
	}
	held, rest, err := parseValue(rest)
	if err != nil {
		return Reply{}, err
	}
	more, rest, err := parseValue(rest)
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

// value is a scalar of RESP.
type value struct {
	null   bool
	text   []byte
	number int64
}

func parseValue(raw []byte) (v value, rest []byte, err error) {
	line, rest, err := cutLine(raw)
	if err != nil {
		return value{}, nil, err
	}
	switch kind, line := line[0], line[1:]; kind {
	case '_':
		return value{null: true}, rest, nil
	case '+':
		return value{text: line}, rest, nil
	case '-':
		return value{}, nil, replyError(line)
	case ':':
		v.number, err = strconv.ParseInt(string(line), 10, 64)
		if err != nil {
			return value{}, nil, fmt.Errorf("%w: :%.20q", ErrProtocol, line)
		}
		return v, rest, nil
	case '$':
		return parseBulk(line, rest)
	}
	return value{}, nil, fmt.Errorf("%w: %.20q", ErrProtocol, line)
}

func parseBulk(length, rest []byte) (value, []byte, error) {
	n, err := strconv.Atoi(string(length))
	switch {
	case err != nil || n < -1:
		return value{}, nil, fmt.Errorf("%w: $%.20q", ErrProtocol, length)
	case n == -1:
		return value{null: true}, rest, nil
	case len(rest)-2 < n || rest[n] != '\r' || rest[n+1] != '\n':
		return value{}, nil, fmt.Errorf("%w: a text of %d bytes is cut", ErrProtocol, n)
	}
	return value{text: rest[:n:n]}, rest[n+2:], nil
}

// cutLine returns a line that is not empty, and what comes after it.
func cutLine(raw []byte) (line, rest []byte, err error) {
	line, rest, ok := bytes.Cut(raw, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, nil, fmt.Errorf("%w: %.20q", ErrProtocol, raw)
	}
	return line, rest, nil
}
