package lock

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/notify"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// The lists of waiters, by key. Locker.Acquire and Locker.Wait call waiters.wait. poll.go decides when a key is polled
// and which waiters then return. waiters.mu guards the lists, and is never held while a command is sent.

// waiters holds the callers that wait, by the key that they wait for.
type waiters struct {
	granter *granter
	group   *background.Group
	hub     *notify.Hub
	retry   Retry

	mu    sync.Mutex
	byKey map[string]*waitList // guarded by mu
	count int                  // guarded by mu; of the waiters on all lists
}

// waitList holds the waiters of one key on one Locker. waiters.byKey has it while it has waiters. The goroutine watch
// polls for all of them, one poll at a time.
type waitList struct {
	waiters *waiters
	key     store.Key
	wake    chan struct{} // has room for one token, which makes watch poll at once
	empty   chan struct{} // closed when the last waiter has gone

	// guarded by waiters.mu
	list  []*waiter // the longest waiting first
	polls int       // how many were begun; only grows
	last  State     // what the last complete poll found; 0 if that failed or there is none
}

// waiter is one call of Acquire, which takes the key, or of Wait, which does not.
type waiter struct {
	ctx   context.Context
	takes bool
	owner string // of the claim of Acquire

	// guarded by waiters.mu
	pollsBefore int   // waitList.polls when it joined: it gets no results of these
	attempts    int   // results of polls that count against Retry.Attempts
	hadToWait   bool  // by the last poll whose result it got without an error; at first by waitList.last
	pollErr     error // of the last poll whose result it got; nil if that succeeded

	result chan result // holds one; gets at most one, when the waiter is removed
}

// result is what a call of Acquire or Wait returns.
type result struct {
	claim Claim
	err   error
}

// wait waits for key, as w. It returns when a poll gives w a result, or ctx is done.
func (ws *waiters) wait(ctx context.Context, key store.Key, w waiter) (Claim, error) {
	w.ctx, w.result = ctx, make(chan result, 1)
	l := ws.add(key, &w)
	select {
	case r := <-w.result:
		return r.claim, r.err
	case <-ctx.Done():
	}
	hadToWait, pollErr := l.cancel(&w)
	select {
	case r := <-w.result: // it arrived before cancel
		return r.claim, r.err
	default:
	}
	if hadToWait {
		return Claim{}, withPollError(fmt.Errorf("%w: %w", ErrHeld, context.Cause(ctx)), pollErr)
	}
	return Claim{}, withPollError(fmt.Errorf("lock: wait: %w", context.Cause(ctx)), pollErr)
}

// withPollError returns err, the error that a wait ends with. If the last poll of the wait failed, it adds that error.
func withPollError(err, pollErr error) error {
	if pollErr == nil {
		return err
	}
	return &WaitError{Err: err, Look: pollErr}
}

// add adds w to the end of the key's list. The first waiter of a key starts watch.
func (ws *waiters) add(key store.Key, w *waiter) *waitList {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	l, ok := ws.byKey[key.Text]
	if !ok {
		l = &waitList{waiters: ws, key: key, wake: make(chan struct{}, 1), empty: make(chan struct{})}
		ws.byKey[key.Text] = l
		ws.group.Go(l.watch)
	}
	ws.count++
	w.pollsBefore, w.hadToWait = l.polls, l.mustWait(w)
	l.list = append(l.list, w)
	return l
}

// number returns how many calls wait.
func (ws *waiters) number() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.count
}

// cancel removes w from the list, if it is still there, and returns w's fields of these names.
func (l *waitList) cancel(w *waiter) (hadToWait bool, pollErr error) {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	l.remove(w)
	return w.hadToWait, w.pollErr
}

// remove removes w from the list and reports whether it was there. The caller holds waiters.mu.
func (l *waitList) remove(w *waiter) bool {
	i := slices.Index(l.list, w)
	if i < 0 {
		return false
	}
	l.waiters.count--
	l.list = slices.Delete(l.list, i, i+1)
	if len(l.list) == 0 {
		delete(l.waiters.byKey, l.key.Text)
		close(l.empty)
	}
	return true
}

// finish removes w from the list and makes its call return. It reports whether w was still there. The caller holds
// waiters.mu.
func (l *waitList) finish(w *waiter, claim Claim, err error) bool {
	isThere := l.remove(w)
	if isThere {
		claim.Note, claim.Value = bytes.Clone(claim.Note), bytes.Clone(claim.Value) // they share a poll
		w.result <- result{claim, err}
	}
	return isThere
}
