package response

import (
	"sync"

	"github.com/onceguard/onceguard/middleware/internal/buffer"
)

// Scratch is pooled memory for the lists of one request. As with a [buffer.Buffer], Free is called only when nothing
// can refer to it any more.
type Scratch struct {
	Stored Response // to be stored, or from a decoded record; it refers to the other lists

	head, text []byte   // see Payload
	changes    []Change // from Changed, or from a decoded record

	snapshot []Change // from Take
	values   []string // the values in snapshot
}

var scratches = sync.Pool{New: func() any { return &Scratch{values: make([]string, 0, 16)} }}

// NewScratch returns an empty Scratch.
func NewScratch() *Scratch { return scratches.Get().(*Scratch) }

// Free clears s and returns it to the pool, unless it has grown large.
func (s *Scratch) Free() {
	const maxKept = 100 // elements
	if max(cap(s.snapshot), cap(s.changes), cap(s.values)) > maxKept || cap(s.text) > buffer.MaxKept {
		return
	}
	clear(s.snapshot[:cap(s.snapshot)])
	clear(s.changes[:cap(s.changes)])
	clear(s.values[:cap(s.values)])
	s.Stored = Response{}
	scratches.Put(s)
}
