package lock

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// errProtocol says that what a server has sent is not RESP, or not what was asked for.
var errProtocol = errors.New("lock: unexpected reply")

// errNoReply says that a command has neither a reply nor an error.
var errNoReply = fmt.Errorf("%w: none", errProtocol)

// replyError is an error that the server has sent, as go-redis's own.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a redis.Error.
func (replyError) RedisError() {}

// isExpected tells whether we know what to do about it.
func (e replyError) isExpected() bool {
	return strings.HasPrefix(string(e), "NOSCRIPT ") || strings.HasPrefix(string(e), "ERR syntax error")
}

// parseReply reads a whole reply in RESP2 or RESP3: nothing, a text, or the pair of claim.lua. The texts are a part of
// raw. (https://redis.io/docs/latest/develop/reference/protocol-spec/)
func parseReply(raw []byte) (reply, error) {
	if len(raw) > 0 && raw[0] == '*' {
		return parsePair(raw)
	}
	v, rest, err := parseValue(raw)
	switch {
	case err != nil:
		return reply{}, err
	case len(rest) > 0:
		return reply{}, fmt.Errorf("%w: %d bytes too many", errProtocol, len(rest))
	case v.null:
		return reply{absent: true}, nil
	case raw[0] == ':':
		return reply{}, fmt.Errorf("%w: a number", errProtocol)
	}
	return reply{text: v.text}, nil
}

func parsePair(raw []byte) (reply, error) {
	line, rest, err := cutLine(raw)
	if err != nil {
		return reply{}, err
	}
	if string(line) != "*2" {
		return reply{}, fmt.Errorf("%w: %.10q", errProtocol, line)
	}
	held, rest, err := parseValue(rest)
	if err != nil {
		return reply{}, err
	}
	more, rest, err := parseValue(rest)
	if err != nil {
		return reply{}, err
	}
	if len(rest) > 0 {
		return reply{}, fmt.Errorf("%w: %d bytes too many", errProtocol, len(rest))
	}
	if held.text == nil && !held.null {
		return reply{}, fmt.Errorf("%w: a pair that begins with a number", errProtocol)
	}
	return reply{pair: true, absent: held.null, text: held.text, fence: string(more.text), left: more.number}, nil
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
			return value{}, nil, fmt.Errorf("%w: :%.20q", errProtocol, line)
		}
		return v, rest, nil
	case '$':
		return parseBulk(line, rest)
	}
	return value{}, nil, fmt.Errorf("%w: %.20q", errProtocol, line)
}

func parseBulk(length, rest []byte) (value, []byte, error) {
	n, err := strconv.Atoi(string(length))
	switch {
	case err != nil || n < -1:
		return value{}, nil, fmt.Errorf("%w: $%.20q", errProtocol, length)
	case n == -1:
		return value{null: true}, rest, nil
	case len(rest)-2 < n || rest[n] != '\r' || rest[n+1] != '\n':
		return value{}, nil, fmt.Errorf("%w: a text of %d bytes is cut", errProtocol, n)
	}
	return value{text: rest[:n:n]}, rest[n+2:], nil
}

// cutLine returns a line that is not empty, and what comes after it.
func cutLine(raw []byte) (line, rest []byte, err error) {
	line, rest, ok := bytes.Cut(raw, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, nil, fmt.Errorf("%w: %.20q", errProtocol, raw)
	}
	return line, rest, nil
}
