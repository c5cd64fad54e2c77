package lock

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// How a key is polled for its waiters. A poll claims the key for the first waiter that takes it, and only looks at the
// key if none does. The first waiter polls in its own goroutine. After that watch, one goroutine for all waiters of the
// key, polls when a message or a timer wakes it. waiters.go has the list, and the mutex.

// pollFirst polls for w, the first waiter on the list, in its goroutine: most often w then need not wait, and no other
// goroutine is needed. An error concerns only w, because its cause may be w's own context.
func (l *waitList) pollFirst(w *waiter) {
	opts := l.beginPoll()
	e, err := l.poll(w.ctx, w.takes, opts)
	if err != nil {
		l.waiters.mu.Lock()
		if w.pollErr = err; w.mustGiveUp(err) {
			l.finish(w, Claim{}, err)
		}
		l.waiters.mu.Unlock()
		l.signal()
	} else {
		l.report(w, e, nil, true)
	}
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	if l.list.Len() > 0 {
		l.waiters.locker.common.group.Go(func() { l.watch(e.left) })
	}
}

// watch polls for all waiters of the key until there are none or the Locker is closed. It polls when a message arrives,
// when signal was called, and when a timer fires, because a message may be missed. left is how long the claim that was
// seen last lasts without a renewal; 0 if that is not known.
func (l *waitList) watch(left time.Duration) {
	group := l.waiters.locker.common.group
	messages := l.waiters.hub.Subscribe(l.key.Text)
	defer messages.Close()
	n := 1 // polls that the timer began, and the first one
	timer := time.NewTimer(l.pause(n, left))
	defer timer.Stop()
	for {
		timed := false
		select {
		case <-l.wake:
		case <-messages.C():
		case <-timer.C:
			timed = true
			n++
		case <-l.empty:
			return
		case <-group.Context().Done():
		}
		if group.Closed() {
			l.report(nil, entry{}, ErrClosed, false)
			return
		}
		left = l.pollForAll(timed)
		messages.Follow()
		timer.Reset(l.pause(n, left))
	}
}

// pause returns how long watch waits for a message after n timed polls: a random time (see Retry), but not longer than
// the claim lasts without a renewal.
func (l *waitList) pause(n int, left time.Duration) time.Duration {
	d := background.Jitter(l.waiters.locker.common.options.retry.pause(n))
	if left > 0 && left < d {
		return left + time.Millisecond
	}
	return d
}

// beginPoll counts a poll, and returns how it has to claim the key.
func (l *waitList) beginPoll() store.ClaimOptions {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	l.polls++
	return store.ClaimOptions{Waits: true, Awaited: l.list.Len() > 1}
}

// pollForAll polls once for all waiters and reports the result to them. timed says that a timer began the poll. It
// returns how long the claim that it found lasts without a renewal, and 0 if that is not known.
func (l *waitList) pollForAll(timed bool) (left time.Duration) {
	taker, ctx, opts := l.nextTaker(), l.waiters.locker.common.group.Base(), l.beginPoll()
	if taker != nil {
		ctx = context.WithoutCancel(taker.ctx)
	}
	e, err := l.poll(ctx, taker != nil, opts)
	l.report(taker, e, err, timed)
	return e.left
}

// nextTaker returns the waiter that gets the key when it is free, and nil if no waiter takes it.
func (l *waitList) nextTaker() *waiter {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	for e := l.list.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.takes {
			return w
		}
	}
	return nil
}

// poll returns what the key holds. It takes the key if that is free and takes is set.
func (l *waitList) poll(ctx context.Context, takes bool, opts store.ClaimOptions) (entry, error) {
	if takes {
		return l.waiters.locker.claim(ctx, l.key, opts)
	}
	return l.waiters.locker.look(ctx, l.key)
}

// mustGiveUp reports whether a poll that failed ends the wait. It ends every Acquire. It ends a Wait only if another
// poll would fail too: the caller of Wait knows that the key was held, and other errors may pass.
func (w *waiter) mustGiveUp(err error) bool {
	return w.takes || errors.Is(err, ErrClosed) || errors.Is(err, ErrForeign)
}

// mustWait reports whether w has to wait, by what the last poll found. The caller holds waiters.mu.
func (l *waitList) mustWait(w *waiter) bool {
	return l.last == Held || l.last == Granted || l.last == Abandoned && w.takes
}

// report gives the result of the last poll to all waiters that it counts for: see reportTo. If the poll took the key,
// that is for taker; if taker has gone, the key is released.
func (l *waitList) report(taker *waiter, found entry, err error, timed bool) {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	state := found.claim.State
	l.last = state
	if state == Granted {
		if taker.place == nil {
			group := l.waiters.locker.common.group
			group.Go(func() { _ = found.claim.Lease.Release(group.Base()) })
		}
		l.finish(taker, found.claim, nil)
	}
	someJoined := false // after the poll was begun
	for e := l.list.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if w.joined == l.polls && err != ErrClosed {
			someJoined = true
			continue
		}
		l.reportTo(w, found, err, timed)
	}
	// Those that joined need a poll of their own, unless the poll has marked a claim: its end publishes a message for
	// them.
	if someJoined && state != Held {
		l.signal()
	}
}

// reportTo gives the result of the last poll to w. The call of w returns
//
//   - if the poll failed and w must give up;
//   - if the key holds a value;
//   - if w is a Wait and the key is free or abandoned;
//   - if this was the last of Retry.Attempts timed polls.
//
// The caller holds waiters.mu.
func (l *waitList) reportTo(w *waiter, found entry, err error, timed bool) {
	if timed {
		w.timedPolls++
	}
	if w.pollErr = err; err == nil {
		w.seenHeld = l.mustWait(w)
	}
	state := found.claim.State
	switch {
	case err != nil && w.mustGiveUp(err):
		l.finish(w, Claim{}, err)
	case state == Settled, !w.takes && (state == Free || state == Abandoned):
		l.finish(w, found.claim, nil)
	case timed && w.timedPolls == l.waiters.locker.common.options.retry.Attempts:
		l.finish(w, Claim{}, withPollError(ErrHeld, err))
	}
}
