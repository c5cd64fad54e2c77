package lock

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/onceguard/onceguard/lock/internal/notify"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// waiters are the callers that wait, by the key that they wait for.
type waiters struct {
	locker *Locker
	hub    *notify.Hub

	mu    sync.Mutex
	byKey map[string]*waitList // guarded by mu
}

func (ws *waiters) init(l *Locker, hub *notify.Hub) {
	ws.locker, ws.hub, ws.byKey = l, hub, map[string]*waitList{}
}

// waitList is everybody who waits for one key on one Locker. It is in waiters.byKey as long as somebody does. One looks at
// a time: the first who came, and then a goroutine.
type waitList struct {
	waiters *waiters
	key     store.Key
	wake    chan struct{} // holds a token when there may be something to see
	empty   chan struct{} // closed when the last one has gone

	// guarded by waiters.mu
	list   *list.List // of *waiter, the longest waiting first
	rounds int        // looks that were begun
	last   State      // what the last one has found, 0 if that is not known
}

// waiter is one call of Acquire, which takes the key, or of Wait, which does not.
type waiter struct {
	ctx    context.Context
	takes  bool
	since  int   // rounds before it came: those looks do not concern it
	looks  int   // by the clock, that have found that it has to wait
	held   bool  // the last look that concerns it, and has not failed, has
	err    error // of the last look that concerns it; nil if that has not failed
	place  *list.Element
	result chan result // receives at most one, when the waiter is taken off the list
}

type result struct {
	claim Claim
	err   error
}

// wait returns when the key is what was waited for, or is not to be waited for any more.
func (ws *waiters) wait(ctx context.Context, key store.Key, takes bool) (Claim, error) {
	w := &waiter{ctx: ctx, takes: takes, result: make(chan result, 1)}
	l, first := ws.add(key, w)
	if first {
		l.lookFirst(w)
	}
	select {
	case r := <-w.result:
		return r.claim, r.err
	case <-ctx.Done():
	}
	held, failed := l.cancel(w)
	select {
	case r := <-w.result: // it came meanwhile
		return r.claim, r.err
	default:
	}
	err := heldUntil(ctx)
	if !held {
		err = fmt.Errorf("lock: wait: %w", context.Cause(ctx))
	}
	return Claim{}, withLook(err, failed)
}

// withLook adds the error of the last look, if that failed, to the one that a wait ends with.
func withLook(err, look error) error {
	if look == nil {
		return err
	}
	return &WaitError{Err: err, Look: look}
}

// add puts w at the end of the key's list. The first one there has to look first.
func (ws *waiters) add(key store.Key, w *waiter) (l *waitList, first bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	l, found := ws.byKey[key.Text]
	if !found {
		l = &waitList{
			waiters: ws, key: key, wake: make(chan struct{}, 1), empty: make(chan struct{}), list: list.New(),
		}
		ws.byKey[key.Text] = l
	}
	w.place, w.since, w.held = l.list.PushBack(w), l.rounds, l.mustWait(w)
	return l, !found
}

// cancel takes w off the list, if it is still there. It reports whether w knew the key held, and why the last look failed
// if it did.
func (l *waitList) cancel(w *waiter) (held bool, failed error) {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	l.remove(w)
	return w.held, w.err
}

// remove takes w off the list and reports whether it was there. The caller holds waiters.mu.
func (l *waitList) remove(w *waiter) bool {
	if w.place == nil {
		return false
	}
	l.list.Remove(w.place)
	w.place = nil
	if l.list.Len() == 0 {
		delete(l.waiters.byKey, l.key.Text)
		close(l.empty)
	}
	return true
}

// finish takes w off the list and lets it return. The caller holds waiters.mu.
func (l *waitList) finish(w *waiter, claim Claim, err error) {
	if l.remove(w) {
		claim.Note, claim.Value = bytes.Clone(claim.Note), bytes.Clone(claim.Value) // each has its own
		w.result <- result{claim, err}
	}
}

// signal lets watch look at once.
func (l *waitList) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
