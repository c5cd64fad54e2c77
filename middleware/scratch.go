package middleware

import "sync"

// scratch is room for lists that are needed while a request is served, and used again. Like a buffer it is freed only
// where nobody can have it any more.
type scratch struct {
	key      []byte   // the storage key, for a checksum
	text     []byte   // a header and trailer as they are stored, on their way in or out
	snapshot []change // a header as it was
	changes  []change // what is stored of it
	values   []string // of the snapshot
}

var scratches = sync.Pool{New: func() any { return &scratch{values: make([]string, 0, 16)} }}

func newScratch() *scratch { return scratches.Get().(*scratch) }

// free lets others use s, and lets go of what its lists have.
func (s *scratch) free() {
	const kept = 100 // elements of a list
	if cap(s.snapshot) > kept || cap(s.changes) > kept || cap(s.values) > kept || cap(s.text) > maxKept {
		return
	}
	clear(s.snapshot[:cap(s.snapshot)])
	clear(s.changes[:cap(s.changes)])
	clear(s.values[:cap(s.values)])
	scratches.Put(s)
}

// checksum is what [checksum] returns.
func (s *scratch) checksum(storageKey string, encoded []byte) uint32 {
	s.key = append(s.key[:0], storageKey...)
	return checksum(s.key, encoded)
}
