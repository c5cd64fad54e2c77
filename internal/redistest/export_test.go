package redistest

import (
	"errors"
	"io"
)

// The splitter, for its tests: it is reached through a proxy otherwise, one
// network round trip for each fuzzed input.

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
