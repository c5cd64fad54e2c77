package response

import (
	"sync"

	"github.com/onceguard/onceguard/middleware/internal/buffer"
)

// Scratch is pooled memory for the lists of one request. Like a [buffer.Buffer] it is freed only where nothing can
// refer to it any more.
type Scratch struct {
	Key     []byte   // of the storage key, for its checksum
	Text    []byte   // of a header and a trailer, as they are stored
	Changes []Change // of Changed, or of a record that was decoded
	Stored  Response // decoded from a record; it refers to the other lists

	snapshot []Change // of Take
	values   []string // the values in snapshot
}

var scratches = sync.Pool{New: func() any { return &Scratch{values: make([]string, 0, 16)} }}

// NewScratch returns an empty Scratch.
func NewScratch() *Scratch { return scratches.Get().(*Scratch) }

// Free clears s and returns it to the pool, unless it has grown large.
func (s *Scratch) Free() {
	const kept = 100 // elements; a longer list is not worth keeping
	if cap(s.snapshot) > kept || cap(s.Changes) > kept || cap(s.values) > kept || cap(s.Text) > buffer.MaxKept {
		return
	}
	clear(s.snapshot[:cap(s.snapshot)])
	clear(s.Changes[:cap(s.Changes)])
	clear(s.values[:cap(s.values)])
	s.Stored = Response{}
	scratches.Put(s)
}
