package response

import (
	"sync"

	"github.com/onceguard/onceguard/middleware/internal/buffer"
)

// Scratch is room for lists that are needed while a request is served, and used again. Like a buffer it is freed only
// where nobody can have it any more.
type Scratch struct {
	Key     []byte   // the storage key, for a checksum
	Text    []byte   // a header and trailer as they are stored, on their way in or out
	Changes []Change // what is stored of a header
	Stored  Response // a response that was read, with parts of the other lists

	snapshot []Change // a header as it was
	values   []string // of the snapshot
}

var scratches = sync.Pool{New: func() any { return &Scratch{values: make([]string, 0, 16)} }}

// NewScratch returns an empty Scratch.
func NewScratch() *Scratch { return scratches.Get().(*Scratch) }

// Free lets others use s, and lets go of what its lists have.
func (s *Scratch) Free() {
	const kept = 100 // elements of a list
	if cap(s.snapshot) > kept || cap(s.Changes) > kept || cap(s.values) > kept || cap(s.Text) > buffer.MaxKept {
		return
	}
	clear(s.snapshot[:cap(s.snapshot)])
	clear(s.Changes[:cap(s.Changes)])
	clear(s.values[:cap(s.values)])
	s.Stored = Response{}
	scratches.Put(s)
}
