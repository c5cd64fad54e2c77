package pipeline

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// maxArgs is how many arguments a command can have without an allocation for them.
const maxArgs = 9

// command is one command and its result. It is also the context under which go-redis sends it, with the values of its
// caller's context. Done is that of the shared deadline, and limits how long go-redis waits for a connection. Deadline
// limits reading and writing: it is the shared deadline too, except that an inline command has until returnBy.
type command struct {
	// set before it is sent
	call     *Call // nil until the command is used
	args     []any
	room     [maxArgs]any    // holds args if they fit
	typed    bool            // go-redis has to parse the reply
	durable  bool            // a WAIT follows it
	addr     string          // the node to send it to, from a redirection; empty for the node of its key
	asking   bool            // that node wants an ASKING first
	deadline *sharedDeadline // shared with other commands
	returnBy time.Time       // when the caller of an inline command has to return; zero for a worker's

	// set by its sender, and read by its caller after done or, for an inline command, in the same goroutine
	done  chan struct{} // receives when the result is there; nil for an inline command
	reply Reply
	acked error // ErrNotReplicated if too few replicas have what it wrote; nil without a WAIT
	err   error

	// guarded by queue.mu; each only becomes true
	sent      bool // taken out of the queue for a batch
	complete  bool // has its result
	abandoned bool // its caller has stopped waiting
}

func (c *command) Deadline() (time.Time, bool) {
	if c.returnBy.IsZero() {
		return c.deadline.Deadline()
	}
	return c.returnBy, true
}

func (c *command) Done() <-chan struct{} { return c.deadline.Done() }

func (c *command) Err() error { return c.deadline.Err() }

// Value returns the value of the caller's context, for hooks of go-redis.
func (c *command) Value(key any) any { return c.call.Context.Value(key) }

// size returns how many bytes its arguments have.
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

// Bytes is an argument of a command, passed as a *Bytes: go-redis writes the bytes without a copy, and a pointer in an
// interface takes no allocation.
//
// Bytes prints as its length, because hooks of go-redis print arguments into traces and logs, and arguments may be
// secret.
type Bytes []byte

// MarshalBinary returns the bytes, for go-redis.
func (b *Bytes) MarshalBinary() ([]byte, error) { return *b, nil }

// Format writes the length, for every verb of package fmt.
func (b *Bytes) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.String()) }

// String returns the length, such as "12 bytes".
func (b *Bytes) String() string { return strconv.Itoa(len(*b)) + " bytes" }

// MarshalText returns the length, for encoding/json and log/slog.
func (b *Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
