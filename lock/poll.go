package lock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// A key is polled for its waiters by one goroutine, watch. A poll claims the key for the call of Acquire that has
// waited longest. If all waiters are calls of Wait, it reads the key without claiming it. The list and the mutex are in
// waiters.go.

// watch polls for all waiters of the key until there are none or the Locker is closed. It polls at once, when a message
// arrives, when a waiter needs that, and when a timer fires, because a message may be missed, and a lease that runs out
// sends none.
func (l *waitList) watch() {
	lasts := l.pollForAll(true)
	select {
	case <-l.empty: // most often: no subscription is needed
		return
	default:
	}
	group := l.waiters.group
	messages := l.waiters.hub.Subscribe(l.key.Text)
	defer messages.Close()
	retry := l.waiters.retry
	bound := retry.Min // of the next pause; it doubles after each poll by the timer
	timer := time.NewTimer(pause(bound, lasts))
	defer timer.Stop()
	for {
		byTimer := false
		select {
		case <-l.wake:
		case <-messages.C():
		case <-timer.C:
			byTimer = true
			bound = min(bound, retry.Max-bound) + bound // without an overflow
		case <-l.empty:
			return
		case <-group.Context().Done():
		}
		if group.Closed() {
			l.report(nil, Claim{}, ErrClosed, false)
			return
		}
		lasts = l.pollForAll(byTimer)
		messages.Follow()
		timer.Reset(pause(bound, lasts))
	}
}

// pause returns how long watch waits for a message: a random time below bound, or until the state has ended, if it is
// known that it lasts less.
func pause(bound, lasts time.Duration) time.Duration {
	d := background.Jitter(bound)
	if lasts > 0 && lasts < d {
		return lasts + time.Millisecond
	}
	return d
}

// pollForAll polls once for all waiters, and reports the result to them. byTimer is false if a message or a waiter
// caused the poll. lasts is that of the Claim.
func (l *waitList) pollForAll(byTimer bool) (lasts time.Duration) {
	var claim Claim
	var err error
	taker, opts := l.beginPoll()
	if granter := l.waiters.granter; taker != nil {
		claim, err = granter.claim(context.WithoutCancel(taker.ctx), l.key, opts)
	} else {
		claim, err = granter.look(l.waiters.group.Base(), l.key, true)
	}
	l.report(taker, claim, err, byTimer)
	return claim.lasts
}

// beginPoll counts a poll. It returns the waiter that gets the key if it is free, or nil if no waiter takes it, and the
// options of the claim.
func (l *waitList) beginPoll() (taker *waiter, opts store.ClaimOptions) {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	l.polls++
	opts = store.ClaimOptions{Waits: true, Awaited: len(l.list) > 1, IsLock: true}
	if i := slices.IndexFunc(l.list, func(w *waiter) bool { return w.takes }); i >= 0 {
		taker = l.list[i]
		opts.Owner = taker.owner
	}
	return taker, opts
}

// mustWait reports whether w has to wait, by what the last complete poll found. The caller holds waiters.mu.
func (l *waitList) mustWait(w *waiter) bool {
	return l.last == Held || l.last == Granted || l.last == Abandoned && w.takes
}

// report gives the result of the last poll to its waiters: the key to taker if the poll took it, and the rest to
// reportTo. If taker has left the list, report releases the key. counts is true if the poll counts against
// Retry.Attempts.
//
// Waiters that joined after the poll had begun do not get the result, because it may be older than they are. Only
// ErrClosed is for them too.
func (l *waitList) report(taker *waiter, claim Claim, err error, counts bool) {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	l.last = claim.State
	if claim.State == Granted && !l.finish(taker, claim, nil) {
		claim.Lease.handle.ReleaseInBackground(l.waiters.group.Base())
	}
	for _, w := range slices.Clone(l.list) { // reportTo may remove w
		switch joinedTooLate := w.pollsBefore == l.polls; {
		case !joinedTooLate || err == ErrClosed:
			l.reportTo(w, claim, err, counts)
		case claim.State != Held: // the poll has marked a held claim, so its end wakes w
			background.Signal(l.wake)
		}
	}
}

// reportTo gives the result of the last poll to w. The call of w returns
//
//   - if the poll failed and w is an Acquire, or another poll would fail too. Other errors may pass, and the caller of
//     Wait knows that the key was held;
//   - if the key holds a value;
//   - if w is a Wait and the key is free or abandoned;
//   - if this was the last of Retry.Attempts polls.
//
// The caller holds waiters.mu.
func (l *waitList) reportTo(w *waiter, claim Claim, err error, counts bool) {
	w.pollErr = err
	if err == nil {
		w.hadToWait = l.mustWait(w)
	}
	if counts {
		w.attempts++
	}
	isLast := counts && w.attempts == l.waiters.retry.Attempts
	isOver := claim.State == Settled || !w.takes && (claim.State == Free || claim.State == Abandoned)
	switch {
	case err != nil && (w.takes || errors.Is(err, ErrClosed) || errors.Is(err, ErrForeign)):
		l.finish(w, Claim{}, err)
	case isOver:
		l.finish(w, claim, nil)
	case isLast:
		l.finish(w, Claim{}, withPollError(ErrHeld, err))
	}
}
