package pipeline

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// maxArgs is how many arguments a command has, at most, without an allocation for them.
const maxArgs = 9

// command is one command and its result. It is also the context under which it is sent: it has the values of its caller's
// context. It ends some time after no caller waits any more or, if its caller sends it inline, when that
// has to return.
type command struct {
	call     *Call // that it is a part of
	deadline *deadline
	until    time.Time // when a caller that sends it inline has to return; zero for a worker's
	args     []any
	room     [maxArgs]any // where args are, as a rule
	typed    bool         // go-redis has to read the reply

	durable bool   // replicas have to acknowledge it
	addr    string // the node to send it to, if another one has named it
	asking  bool   // that node wants an ASKING first

	done  chan struct{} // receives when the next three are set; nil if it was sent inline
	reply Reply
	acked error // why too few replicas have it; nil if enough have
	err   error

	// guarded by queue.mu
	sent      bool
	complete  bool
	abandoned bool // by its caller
}

func (c *command) Deadline() (time.Time, bool) {
	if c.until.IsZero() {
		return c.deadline.Deadline()
	}
	return c.until, true
}

func (c *command) Done() <-chan struct{} { return c.deadline.Done() }

func (c *command) Err() error { return c.deadline.Err() }

// Value lets hooks of go-redis see what the caller's context has.
func (c *command) Value(key any) any { return c.call.Context.Value(key) }

// size is about how many bytes it sends.
func (c *command) size() (n int) {
	for _, arg := range c.args {
		n += sizeOf(arg)
	}
	return n
}

// fits reports whether no argument has more than n bytes.
func (c *command) fits(n int) bool {
	for _, arg := range c.args {
		if sizeOf(arg) > n {
			return false
		}
	}
	return true
}

func sizeOf(arg any) int {
	switch arg := arg.(type) {
	case string:
		return len(arg)
	case []byte:
		return len(arg)
	case *Bytes:
		return len(*arg)
	}
	return 0
}

// Bytes is an argument. Its pointer fits into an interface, and go-redis writes what it points to: that takes neither a
// copy nor an allocation.
//
// It prints as its length. Hooks of go-redis print arguments into traces and logs, and these hold responses.
type Bytes []byte

// MarshalBinary is for go-redis.
func (b *Bytes) MarshalBinary() ([]byte, error) { return *b, nil }

// Format implements [fmt.Formatter], for every verb.
func (b *Bytes) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.String()) }

// String returns the length in words.
func (b *Bytes) String() string { return strconv.Itoa(len(*b)) + " bytes" }

// MarshalText is for encoding/json and log/slog.
func (b *Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
