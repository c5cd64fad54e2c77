package lock_test

import (
	"bytes"
	"fmt"
	"net"
	"time"
)

// canned is a connection to a server that is not there: what it would say is known before. It neither waits nor
// allocates, so that what is measured on it is the client's part.
type canned struct {
	holds  string // what every key holds; none if empty
	begun  []byte // of a command
	unread bytes.Buffer
}

// Write answers whole commands, and keeps the beginning of one: a client whose buffer is full writes what it has.
func (c *canned) Write(p []byte) (int, error) {
	rest := p
	if len(c.begun) > 0 {
		rest = append(c.begun, p...)
	}
	for len(rest) > 0 {
		var args [10][]byte
		next, whole := cutCommand(&args, rest)
		if !whole {
			break
		}
		rest = next
		switch {
		case string(args[0]) == "set" && c.holds != "":
			fmt.Fprintf(&c.unread, "$%d\r\n%s\r\n", len(c.holds), c.holds)
		case string(args[0]) == "set":
			c.unread.WriteString("$-1\r\n")
		case string(args[0]) == "evalsha": // what the scripts say whose claim stands
			c.unread.WriteString("$20\r\n")
			c.unread.Write(args[4])
			c.unread.WriteString("\r\n")
		case string(args[0]) == "hello":
			c.unread.WriteString("-ERR unknown command\r\n")
		default:
			c.unread.WriteString("+OK\r\n")
		}
	}
	c.begun = append(c.begun[:0], rest...)
	return len(p), nil
}

// cutCommand takes a command off the front of p, and reports whether there is a whole one.
func cutCommand(args *[10][]byte, p []byte) (rest []byte, whole bool) {
	n, p := cutNumber(p)
	for i := range n {
		var size int
		if size, p = cutNumber(p); len(p) < size+2 {
			return nil, false
		}
		args[i], p = p[:size], p[size+2:]
	}
	return p, n > 0
}

// cutNumber takes a line off the front of p that is a number behind one byte. It returns 0 and nothing if p has no whole line.
func cutNumber(p []byte) (n int, rest []byte) {
	end := bytes.Index(p, []byte("\r\n"))
	if end < 1 {
		return 0, nil
	}
	for _, digit := range p[1:end] {
		n = 10*n + int(digit-'0')
	}
	return n, p[end+2:]
}

func (c *canned) Read(p []byte) (int, error)       { return c.unread.Read(p) }
func (c *canned) Close() error                     { return nil }
func (c *canned) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *canned) SetDeadline(time.Time) error      { return nil }
func (c *canned) SetReadDeadline(time.Time) error  { return nil }
func (c *canned) SetWriteDeadline(time.Time) error { return nil }
