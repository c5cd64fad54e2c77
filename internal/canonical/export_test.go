package canonical

import "hash"

// NewHashOf returns a Hash that hashes with sum, and is for nobody else.
func NewHashOf(sum hash.Hash) *Hash { return &Hash{sha: sum} }

// Flush hashes what was gathered.
func (h *Hash) Flush() { h.flush() }
