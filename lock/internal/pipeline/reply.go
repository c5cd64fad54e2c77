package pipeline

// The parser of replies that go-redis returns unparsed (raw in exec.go). It has no state.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// Reply is the reply to a command: null, a text, a number, or the pair that claim.lua returns.
type Reply struct {
	Absent bool   // null: the key did not exist when Redis executed the command
	Text   []byte // what the key holds, the head that a script has read from it, or the digits of a number
	Pair   bool   // this is a reply of claim.lua, which sets Fence or Left
	Fence  string // the fence of a claim that was granted, in decimal digits
	Left   int64  // the key's time to live in milliseconds; negative if it never expires

	WaitErr error // ErrNotReplicated if too few replicas have what the command wrote; nil without a WAIT
}

// ErrProtocol is the error of a reply that is not RESP, or not of the kind that the command returns.
var ErrProtocol = errors.New("lock: unexpected reply")

// errNoReply is the error of a command that has neither a reply nor an error.
var errNoReply = fmt.Errorf("%w: none", ErrProtocol)

// isExpected reports whether package store or Call handles the error reply, so that go-redis need not parse it.
func isExpected(reply rediserr.Reply) bool {
	return strings.HasPrefix(string(reply), "NOSCRIPT ") || strings.HasPrefix(string(reply), "ERR syntax error")
}

// ParseReply parses a whole reply in RESP2 or RESP3: null, a text, or the pair of claim.lua. The texts are slices of
// raw. (https://redis.io/docs/latest/develop/reference/protocol-spec/)
func ParseReply(raw []byte) (Reply, error) {
	rest, isPair := bytes.CutPrefix(raw, []byte("*2\r\n"))
	var second scalar
	first, rest, err := parseScalar(rest)
	if err == nil && isPair {
		second, rest, err = parseScalar(rest)
	}
	switch {
	case err != nil:
		return Reply{}, err
	case len(rest) > 0:
		return Reply{}, fmt.Errorf("%w: %d bytes too many", ErrProtocol, len(rest))
	case first.text == nil && !first.null && isPair:
		return Reply{}, fmt.Errorf("%w: a number", ErrProtocol)
	case first.text == nil && !first.null:
		return Reply{Text: first.digits}, nil
	}
	return Reply{
		Absent: first.null, Text: first.text, Pair: isPair, Fence: string(second.text), Left: second.number,
	}, nil
}

// scalar is a null, text or number of RESP.
type scalar struct {
	null   bool
	text   []byte
	digits []byte // of a number
	number int64
}

// parseScalar parses the scalar that raw begins with, and returns what follows it. An error reply is a rediserr.Reply.
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
		return scalar{}, nil, rediserr.Reply(line)
	case ':':
		v.digits = line
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
