package sqljournal

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// looks sends concurrent looks together. A look is sent at once, and alone, while fewer than maxSenders callers are sending.
// Otherwise it waits. A caller that has finished sending wakes the first that waits, which then sends a batch: its own look
// and those of all others that wait. No goroutine is started for this.
//
// A batch is sent with its sender's context, so it can fail for a reason that concerns the sender alone. The others in it
// then look alone. A look that has waited for lookPatience is also sent alone, in case the senders' connections are silent.
type looks struct {
	mu      sync.Mutex
	senders int           // callers that send, or were woken in order to send
	waiting []*lookWaiter // in the order of their arrival
}

const (
	maxSenders   = 2
	maxLooks     = 64 // in a batch
	lookPatience = 250 * time.Millisecond
)

// lookWaiter is a look that waits. It is woken at most once.
type lookWaiter struct {
	key  string
	woke chan wakeUp // has room for one

	sends bool // it was woken in order to send; guarded by looks.mu
}

// wakeUp tells a look that waits how it goes on.
type wakeUp struct {
	send  bool // it sends the next batch
	alone bool // the batch that it was in has failed
	row   row  // otherwise its result
}

type (
	lookOneFunc  func(ctx context.Context, key string) (row, error)
	lookManyFunc func(ctx context.Context, keys []string) (map[string]row, error)
)

func (l *looks) do(ctx context.Context, key string, one lookOneFunc, many lookManyFunc) (row, error) {
	self := l.enter(key)
	if self == nil {
		defer l.next()
		return one(ctx, key)
	}
	patience := time.NewTimer(lookPatience)
	defer patience.Stop()
	var woken wakeUp
	select {
	case woken = <-self.woke:
	case <-patience.C:
		l.leave(self)
		return one(ctx, key)
	case <-ctx.Done():
		l.leave(self)
		return row{}, ctx.Err()
	}
	switch {
	case woken.send:
		defer l.next()
		return l.sendBatch(ctx, key, one, many)
	case woken.alone:
		return one(ctx, key)
	}
	return woken.row, nil
}

// enter returns nil if the caller may send at once. The caller then has to call next.
func (l *looks) enter(key string) *lookWaiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.senders < maxSenders {
		l.senders++
		return nil
	}
	w := &lookWaiter{key: key, woke: make(chan wakeUp, 1)}
	l.waiting = append(l.waiting, w)
	return w
}

// next is called by a sender that has finished. It makes the first that waits a sender in its place.
func (l *looks) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.senders--
		return
	}
	w := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	w.sends = true
	w.woke <- wakeUp{send: true}
}

// leave is called by a look that no longer waits. If it was made a sender meanwhile, the next one becomes it.
func (l *looks) leave(self *lookWaiter) {
	l.mu.Lock()
	if i := slices.Index(l.waiting, self); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	sends := self.sends
	l.mu.Unlock()
	if sends {
		l.next()
	}
}

// sendBatch sends a look at key together with those that wait, and wakes these.
func (l *looks) sendBatch(ctx context.Context, key string, one lookOneFunc, many lookManyFunc) (row, error) {
	others := l.take(maxLooks - 1)
	if len(others) == 0 {
		return one(ctx, key)
	}
	keys := []string{key}
	for _, w := range others {
		keys = append(keys, w.key)
	}
	done := false
	defer func() {
		if !done { // after a panic, too
			for _, w := range others {
				w.woke <- wakeUp{alone: true}
			}
		}
	}()
	found, err := many(ctx, keys)
	if err != nil {
		return row{}, err
	}
	done = true
	for _, w := range others {
		r := found[w.key]
		r.note, r.record = bytes.Clone(r.note), bytes.Clone(r.record) // several may look at the same key
		w.woke <- wakeUp{row: r}
	}
	return found[key], nil
}

// take removes up to n looks from those that wait.
func (l *looks) take(n int) []*lookWaiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.waiting))
	taken := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return taken
}
