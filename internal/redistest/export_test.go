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
