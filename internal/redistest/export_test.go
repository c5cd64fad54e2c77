package redistest

import (
	"errors"
	"io"
)

// The parsers, for their tests: they are reached over the network otherwise, one
// round trip for each fuzzed input.

// Splitter reads frames off a stream.
type Splitter struct{ s *splitter }

// NewSplitter splits r.
func NewSplitter(r io.Reader) Splitter { return Splitter{newSplitter(r)} }

// Command returns a command, and its bytes.
func (s Splitter) Command() (Command, []byte, error) {
	cmd, err := s.s.command()
	return cmd, cmd.raw, err
}

// Reply returns the bytes of a reply.
func (s Splitter) Reply() ([]byte, error) {
	r, err := s.s.reply()
	return r.raw, err
}

// IsProtocol reports whether err blames the bytes and not their end.
func IsProtocol(err error) bool { return errors.Is(err, errProtocol) }

// ParseView reads what CLUSTER NODES answers, and returns how many slots have an
// owner.
func ParseView(text string) (owned int, err error) {
	v, err := parseView(text)
	for _, n := range v {
		for _, r := range n.slots {
			owned += r.last - r.first + 1
		}
	}
	return owned, err
}

// IsOlder compares the versions of servers.
func IsOlder(got, want string) bool { return isOlder(got, want) }
