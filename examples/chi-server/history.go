package main

import "sync"

// historyLimit is the number of events that a history keeps, over all owners.
const historyLimit = 1000

// history has the last historyLimit events of all owners, in order and in memory. A new event drops the oldest, whose
// owner may be another. The zero value is empty. The methods are safe for concurrent use.
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

// of returns the events of the owner, the oldest first. The slice is never nil, so that its JSON is [] and not null.
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

// find returns the owner's event with that id.
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
