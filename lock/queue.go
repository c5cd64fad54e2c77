package lock

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// queues are those who wait, by the key that they wait for.
type queues struct {
	locker *Locker

	mu    sync.Mutex
	byKey map[string]*queue
}

func (qs *queues) init(l *Locker) {
	qs.locker, qs.byKey = l, map[string]*queue{}
}

// queue is everybody who waits for one key on one Locker. It is in queues.byKey for as long as somebody does. One looks
// at a time: the first who came, and then a goroutine.
type queue struct {
	*queues
	key   storageKey
	wake  chan struct{} // holds a token when there may be something to see
	empty chan struct{} // closed when the last one has gone
	heard atomic.Bool   // the server has said that it will tell us of the key's end

	// guarded by queues.mu
	waiters *list.List // of *waiter, the longest waiting first
	rounds  int        // looks that were begun
	last    State      // what the last one has found, 0 if that is not known

	left      bool        // messages are of no use any more; guarded by channel.mu
	following atomic.Bool // it is being found out which node to hear
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
	result chan result // receives one at the most, when the waiter is taken off the queue
}

type result struct {
	claim Claim
	err   error
}

// wait returns when the key is what was waited for, or is not to be waited for any more.
func (qs *queues) wait(ctx context.Context, key storageKey, takes bool) (Claim, error) {
	w := &waiter{ctx: ctx, takes: takes, result: make(chan result, 1)}
	q, first := qs.join(key, w)
	if first {
		q.lookFirst(w)
	}
	select {
	case r := <-w.result:
		return r.claim, r.err
	case <-ctx.Done():
	}
	known, failed := q.leave(w)
	select {
	case r := <-w.result: // it came meanwhile
		return r.claim, r.err
	default:
	}
	err := heldUntil(ctx)
	if !known {
		err = fmt.Errorf("lock: wait: %w", context.Cause(ctx))
	}
	return Claim{}, also(err, failed)
}

// also adds the error of the last look, if that failed, to the one that a wait ends with.
func also(err, failed error) error {
	if failed == nil {
		return err
	}
	return &WaitError{Err: err, Look: failed}
}

// join puts w at the end of the key's queue. The first one there has to look first.
func (qs *queues) join(key storageKey, w *waiter) (q *queue, first bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q, found := qs.byKey[key.text]
	if !found {
		q = &queue{
			queues: qs, key: key, wake: make(chan struct{}, 1), empty: make(chan struct{}), waiters: list.New(),
		}
		qs.byKey[key.text] = q
	}
	w.place, w.since, w.held = q.waiters.PushBack(w), q.rounds, q.holdsUp(w)
	return q, !found
}

// leave takes w off the queue, if it is still there. It reports whether w knew the key held, and why the last look failed
// if it did.
func (q *queue) leave(w *waiter) (known bool, failed error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(w)
	return w.held, w.err
}

// remove takes w off the queue and tells whether it was there. The caller holds mu.
func (q *queue) remove(w *waiter) bool {
	if w.place == nil {
		return false
	}
	q.waiters.Remove(w.place)
	w.place = nil
	if q.waiters.Len() == 0 {
		delete(q.byKey, q.key.text)
		close(q.empty)
	}
	return true
}

// end takes w off the queue and lets it go. The caller holds mu.
func (q *queue) end(w *waiter, claim Claim, err error) {
	if q.remove(w) {
		claim.Note, claim.Value = bytes.Clone(claim.Note), bytes.Clone(claim.Value) // each has its own
		w.result <- result{claim, err}
	}
}

// signal lets the watch look at once.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// lookFirst looks for the first one in the queue. Most often there is nothing to wait for, and no goroutine is needed
// to see that. What goes wrong concerns it alone: it may be its own context.
func (q *queue) lookFirst(w *waiter) {
	how := q.begin()
	f, err := q.look(w.ctx, w.takes, how)
	if err != nil {
		q.mu.Lock()
		if w.err = err; w.mustGiveUp(err) {
			q.end(w, Claim{}, err)
		}
		q.mu.Unlock()
		q.signal()
	} else {
		q.tell(w, f, nil, true)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiters.Len() > 0 {
		q.locker.work.run(func() { q.watch(f.left) })
	}
}

// watch looks for everybody in the queue when it is woken, and when a timer says so: what a message has missed is seen
// that way. The claim that was seen last ends after left, if that is known.
func (q *queue) watch(left time.Duration) {
	q.locker.channel.follow(q)
	defer q.locker.channel.leave(q)
	n := 1 // looks by the clock
	timer := time.NewTimer(q.pause(n, left))
	defer timer.Stop()
	for {
		byClock := false
		select {
		case <-q.wake:
		case <-timer.C:
			byClock = true
			n++
		case <-q.empty:
			return
		case <-q.locker.work.ctx.Done():
		}
		if q.locker.work.closed() {
			q.tell(nil, found{}, ErrClosed, false)
			return
		}
		left = q.round(byClock)
		q.locker.channel.follow(q) // if it is not heard yet, or not any more
		timer.Reset(q.pause(n, left))
	}
}

// pause returns how long to wait for a message after the n-th look by the clock.
func (q *queue) pause(n int, left time.Duration) time.Duration {
	d := jitter(q.locker.retry.pause(n))
	if left > 0 && left < d {
		return left + time.Millisecond
	}
	return d
}

// begin counts a look, and tells how it is to ask.
func (q *queue) begin() request {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rounds++
	return request{waits: true, awaited: q.waiters.Len() > 1}
}

// round looks once for everybody, and tells them. It returns how long the claim that it saw lasts without a renewal.
func (q *queue) round(byClock bool) (left time.Duration) {
	next, ctx, how := q.next(), context.Background(), q.begin()
	if next != nil {
		ctx = context.WithoutCancel(next.ctx)
	}
	f, err := q.look(ctx, next != nil, how)
	q.tell(next, f, err, byClock)
	return f.left
}

// next returns who is to have the key, nil if nobody in the queue wants it.
func (q *queue) next() *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := q.waiters.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.takes {
			return w
		}
	}
	return nil
}

// look takes the key if it is to, and tells what it holds.
func (q *queue) look(ctx context.Context, takes bool, how request) (found, error) {
	if takes {
		return q.locker.claim(ctx, q.key, how)
	}
	return q.locker.look(ctx, q.key)
}

// mustGiveUp reports whether a look that failed ends the wait. An Acquire fails with it. A Wait goes on, but not where
// another look would find the same: it is asked for by those who know that the key was held, and trouble may pass.
func (w *waiter) mustGiveUp(err error) bool {
	return w.takes || errors.Is(err, ErrClosed) || errors.Is(err, ErrForeign)
}

// holdsUp tells whether the last look has found that w has to wait. The caller holds mu.
func (q *queue) holdsUp(w *waiter) bool {
	return q.last == Held || q.last == Granted || q.last == Abandoned && w.takes
}

// tell lets those go whom the last look concerns: all of them if it met a value, those who cannot go on if it failed, the
// one for whom it took the key, those who do not want it when nobody works under it any more, and those who have seen
// enough.
func (q *queue) tell(taker *waiter, f found, err error, byClock bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = f.State
	if f.State == Granted {
		if taker.place == nil { // it has left meanwhile
			q.locker.work.run(func() { _ = f.Lease.Release(context.Background()) })
		}
		q.end(taker, f.Claim, nil)
	}
	late := false
	for e := q.waiters.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if w.since == q.rounds && err != ErrClosed { // it came after the look was sent
			late = true
			continue
		}
		if byClock {
			w.looks++
		}
		if w.err = err; err == nil {
			w.held = q.holdsUp(w)
		}
		switch {
		case err != nil && w.mustGiveUp(err):
			q.end(w, Claim{}, err)
		case f.State == Settled, !w.takes && (f.State == Free || f.State == Abandoned):
			q.end(w, f.Claim, nil)
		case byClock && w.looks == q.locker.retry.Attempts:
			q.end(w, Claim{}, also(ErrHeld, err))
		}
	}
	// A claim that was met and marked sends a message at its end, and that is in time for whoever came meanwhile.
	if late && f.State != Held {
		q.signal()
	}
}
