package lock

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
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

// lookFirst looks for the first one on the list. Most often there is nothing to wait for, and no goroutine is needed to
// see that. An error concerns it alone: it may be its own context.
func (l *waitList) lookFirst(w *waiter) {
	request := l.begin()
	f, err := l.look(w.ctx, w.takes, request)
	if err != nil {
		l.waiters.mu.Lock()
		if w.err = err; w.mustGiveUp(err) {
			l.finish(w, Claim{}, err)
		}
		l.waiters.mu.Unlock()
		l.signal()
	} else {
		l.report(w, f, nil, true)
	}
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	if l.list.Len() > 0 {
		l.waiters.locker.core.group.Go(func() { l.watch(f.left) })
	}
}

// watch looks for everybody on the list when it is woken, and when a timer fires: what a message has missed is seen that
// way. The claim that was seen last ends after left, if that is known.
func (l *waitList) watch(left time.Duration) {
	group := l.waiters.locker.core.group
	messages := l.waiters.hub.Subscribe(l.key.Text)
	defer messages.Close()
	n := 1 // looks by the clock
	timer := time.NewTimer(l.pause(n, left))
	defer timer.Stop()
	for {
		byClock := false
		select {
		case <-l.wake:
		case <-messages.C():
		case <-timer.C:
			byClock = true
			n++
		case <-l.empty:
			return
		case <-group.Context().Done():
		}
		if group.Closed() {
			l.report(nil, found{}, ErrClosed, false)
			return
		}
		left = l.lookForAll(byClock)
		messages.Follow()
		timer.Reset(l.pause(n, left))
	}
}

// pause returns how long to wait for a message after the n-th look by the clock.
func (l *waitList) pause(n int, left time.Duration) time.Duration {
	d := background.Jitter(l.waiters.locker.core.options.retry.pause(n))
	if left > 0 && left < d {
		return left + time.Millisecond
	}
	return d
}

// begin counts a look, and returns how it has to ask.
func (l *waitList) begin() store.Request {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	l.rounds++
	return store.Request{Waits: true, Awaited: l.list.Len() > 1}
}

// lookForAll looks once for everybody, and lets those return whom it concerns. It returns how long the claim that it saw
// lasts without a renewal.
func (l *waitList) lookForAll(byClock bool) (left time.Duration) {
	next, ctx, request := l.next(), context.Background(), l.begin()
	if next != nil {
		ctx = context.WithoutCancel(next.ctx)
	}
	f, err := l.look(ctx, next != nil, request)
	l.report(next, f, err, byClock)
	return f.left
}

// next returns who is to have the key, nil if nobody on the list wants it.
func (l *waitList) next() *waiter {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	for e := l.list.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.takes {
			return w
		}
	}
	return nil
}

// look takes the key if it is to, and returns what it holds.
func (l *waitList) look(ctx context.Context, takes bool, request store.Request) (found, error) {
	if takes {
		return l.waiters.locker.claim(ctx, l.key, request)
	}
	return l.waiters.locker.look(ctx, l.key)
}

// mustGiveUp reports whether a look that failed ends the wait. An Acquire fails with it. A Wait goes on, but not where
// another look would find the same: it is asked for by those who know that the key was held, and trouble may pass.
func (w *waiter) mustGiveUp(err error) bool {
	return w.takes || errors.Is(err, ErrClosed) || errors.Is(err, ErrForeign)
}

// mustWait reports whether the last look has found that w has to wait. The caller holds waiters.mu.
func (l *waitList) mustWait(w *waiter) bool {
	return l.last == Held || l.last == Granted || l.last == Abandoned && w.takes
}

// report lets those return whom the last look concerns: all of them if it met a value, those who cannot go on if it
// failed, the one for whom it took the key, those who do not want it when nobody works under it any more, and those who
// have looked often enough.
func (l *waitList) report(taker *waiter, f found, err error, byClock bool) {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	state := f.claim.State
	l.last = state
	if state == Granted {
		if taker.place == nil { // it has returned meanwhile
			l.waiters.locker.core.group.Go(func() { _ = f.claim.Lease.Release(context.Background()) })
		}
		l.finish(taker, f.claim, nil)
	}
	late := false
	for e := l.list.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if w.since == l.rounds && err != ErrClosed { // it came after the look was sent
			late = true
			continue
		}
		l.reportTo(w, f, err, byClock)
	}
	// A claim that was met and marked sends a message at its end, and that is in time for those who came meanwhile.
	if late && state != Held {
		l.signal()
	}
}

// reportTo lets w return if the last look says so. The caller holds waiters.mu.
func (l *waitList) reportTo(w *waiter, f found, err error, byClock bool) {
	if byClock {
		w.looks++
	}
	if w.err = err; err == nil {
		w.held = l.mustWait(w)
	}
	state := f.claim.State
	switch {
	case err != nil && w.mustGiveUp(err):
		l.finish(w, Claim{}, err)
	case state == Settled, !w.takes && (state == Free || state == Abandoned):
		l.finish(w, f.claim, nil)
	case byClock && w.looks == l.waiters.locker.core.options.retry.Attempts:
		l.finish(w, Claim{}, withLook(ErrHeld, err))
	}
}
