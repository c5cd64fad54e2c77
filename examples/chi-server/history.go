package main

import "sync"

// historyLimit bounds what a history keeps, over all owners.
const historyLimit = 1000

// history is what was done, in order, and for whom. It is kept in memory, for as long as the process lives, and only the
// last historyLimit things are: the oldest gives way, be it another owner's. The zero value is empty. Its methods are
// safe for concurrent use.
type history[T any] struct {
	mu     sync.Mutex
	events []event[T]
}

type event[T any] struct {
	owner, id string
	what      T
}

func (h *history[T]) add(owner, id string, what T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) == historyLimit {
		h.events = append(h.events[:0], h.events[1:]...)
	}
	h.events = append(h.events, event[T]{owner, id, what})
}

// of returns all that was done for the owner, the oldest first. It is never nil, so that JSON has [] and not null.
func (h *history[T]) of(owner string) []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := []T{}
	for _, e := range h.events {
		if e.owner == owner {
			list = append(list, e.what)
		}
	}
	return list
}

// find returns what was done for the owner under the id.
func (h *history[T]) find(owner, id string) (what T, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.owner == owner && e.id == id {
			return e.what, true
		}
	}
	return what, false
}
