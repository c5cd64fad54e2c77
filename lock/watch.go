package lock

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// How a waitList looks: its first waiter by itself, then one goroutine for all, when a message or a timer wakes it.

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
func (l *waitList) begin() store.ClaimOptions {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	l.rounds++
	return store.ClaimOptions{Waits: true, Awaited: l.list.Len() > 1}
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
func (l *waitList) look(ctx context.Context, takes bool, request store.ClaimOptions) (found, error) {
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
