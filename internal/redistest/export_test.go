package redistest

import (
	"errors"
	"io"
)

// The tests call the parsers directly: over the network, each fuzzed input would take a round trip.

// Splitter reads frames from a stream.
type Splitter struct{ s *splitter }

// NewSplitter returns a Splitter of r.
func NewSplitter(r io.Reader) Splitter { return Splitter{newSplitter(r)} }

// Command returns the next command and its bytes.
func (s Splitter) Command() (Command, []byte, error) {
	cmd, err := s.s.command()
	return cmd, cmd.raw, err
}

// Reply returns the bytes of the next reply.
func (s Splitter) Reply() ([]byte, error) {
	r, err := s.s.reply()
	return r.raw, err
}

// IsProtocol reports whether err means malformed bytes, not the end of the stream.
func IsProtocol(err error) bool { return errors.Is(err, errProtocol) }

// ParseView parses the reply to CLUSTER NODES, and returns the number of slots with an owner.
func ParseView(text string) (owned int, err error) {
	v, err := parseView(text)
	for _, n := range v {
		for _, r := range n.slots {
			owned += r.last - r.first + 1
		}
	}
	return owned, err
}

// IsOlder reports whether the version got is before want.
func IsOlder(got, want string) bool { return isOlder(got, want) }
