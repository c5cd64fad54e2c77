package dbtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// message is a message of PostgreSQL's wire protocol, version 3: a type, its length, and its content.
type message struct {
	kind byte // 0 for what begins a connection
	body []byte
	raw  []byte // all of it
}

// maxMessage limits a message that the proxy reads.
const maxMessage = 8 << 20

var errMessage = errors.New("not a message of PostgreSQL's protocol")

// readMessage reads a message. If first is true, that is the first one on a connection, which has no type.
func readMessage(in *bufio.Reader, first bool) (message, error) {
	head := make([]byte, 5)
	at := 1
	if first {
		head, at = head[:4], 0
	}
	if _, err := io.ReadFull(in, head); err != nil {
		return message{}, err
	}
	n := binary.BigEndian.Uint32(head[at:])
	if n < 4 || n > maxMessage {
		return message{}, fmt.Errorf("%w: a length of %d", errMessage, n)
	}
	raw := append(head, make([]byte, n-4)...)
	if _, err := io.ReadFull(in, raw[len(head):]); err != nil {
		return message{}, err
	}
	m := message{body: raw[len(head):], raw: raw}
	if !first {
		m.kind = head[0]
	}
	return m, nil
}

// request is one simple query, or the messages of the extended protocol up to a Sync. The server ends its reply with
// one ReadyForQuery.
type request struct {
	statements []string // that it executes
	raw        []byte
	quits      bool // it ends the connection, and gets no reply
}

// requests puts a client's messages together.
type requests struct {
	in       *bufio.Reader
	prepared map[string]string // by the name of the prepared statement
}

func newRequests(in io.Reader) *requests {
	return &requests{in: bufio.NewReader(in), prepared: map[string]string{}}
}

// next reads a request. A statement that is only prepared does not count as executed.
func (r *requests) next() (q request, _ error) {
	bound := ""
	for {
		m, err := readMessage(r.in, false)
		if err != nil {
			return q, err
		}
		q.raw = append(q.raw, m.raw...)
		words := strings.SplitN(string(m.body), "\x00", 3)
		switch m.kind {
		case 'Q': // Query: the text
			q.statements = append(q.statements, words[0])
			return q, nil
		case 'P': // Parse: the name, the text
			if len(words) > 1 {
				r.prepared[words[0]] = words[1]
			}
		case 'B': // Bind: the portal, the name
			if len(words) > 1 {
				bound = r.prepared[words[1]]
			}
		case 'E': // Execute
			q.statements = append(q.statements, bound)
		case 'S': // Sync
			return q, nil
		case 'X': // Terminate
			q.quits = true
			return q, nil
		}
	}
}

// Match reports whether a [Rule] applies to a request that executes these statements.
type Match func(statements []string) bool

// Statement matches requests that execute a statement with this beginning, in any case.
func Statement(prefix string) Match {
	return func(statements []string) bool {
		return slices.ContainsFunc(statements, func(s string) bool {
			s = strings.TrimSpace(s)
			return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
		})
	}
}
