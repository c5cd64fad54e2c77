package pipeline

import (
	"context"
	"fmt"
	"io"
	"strconv"
)

// maxArgs is how many arguments a command can have without an allocation for them.
const maxArgs = 9

// command is one command and its result. Its sender moves it from stage to stage; its caller may cancel it in each:
//
//	stage      what it means                          if its caller cancels it then
//	waiting    in the queue                           it is never sent
//	sent       in a batch that is being sent          its result goes to the Call's Late
//	complete   its result is set                      the caller returns the result after all
//
// A queued command that is too late to be answered in time leaves the queue unsent, and stays in the stage waiting: its
// caller is about to time out and cancel it.
//
// A command is also the context under which go-redis sends it, if it goes alone: the shared context, with the values of
// its caller's.
type command struct {
	context.Context // one of the sharedContexts, set before it is sent, as the fields below

	call    *Call // nil until the command is used
	args    []any
	room    [maxArgs]any // holds args if they fit
	durable bool         // a WAIT follows it
	alone   bool         // it is sent in a batch of its own
	addr    string       // the node to send it to, from a redirection; empty for the node of its key

	// set by the worker; the caller reads them after completed has arrived
	events chan<- event // gets completed when the command is complete
	reply  Reply
	err    error

	// guarded by queue.mu
	stage    stage // only moves forward
	canceled bool  // its caller has stopped waiting; never cleared
}

// stage is how far a command has come.
type stage uint8

const (
	stageWaiting stage = iota
	stageSent
	stageComplete
)

// Value returns the value of the caller's context, for hooks of go-redis.
func (c *command) Value(key any) any { return c.call.Context.Value(key) }

// size returns the size of the arguments, in bytes.
func (c *command) size() (n int) {
	for _, arg := range c.args {
		n += sizeOf(arg)
	}
	return n
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
// interface takes no allocation. It prints as its length: hooks of go-redis print arguments into traces and logs, and
// arguments may be secret.
type Bytes []byte

// MarshalBinary returns the bytes, for go-redis.
func (b *Bytes) MarshalBinary() ([]byte, error) { return *b, nil }

// Format writes the length, for every verb of package fmt.
func (b *Bytes) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.String()) }

// String returns the length, such as "12 bytes".
func (b *Bytes) String() string { return strconv.Itoa(len(*b)) + " bytes" }

// MarshalText returns the length, for encoding/json and log/slog.
func (b *Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
