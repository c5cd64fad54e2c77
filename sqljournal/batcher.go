package sqljournal

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// batcher sends concurrent looks together. While fewer than maxSenders callers are sending, a look is sent at once and
// alone. Otherwise it waits. A sender that has finished makes the first waiting look a sender, which sends a batch: its
// own look and the others that wait. The batcher starts no goroutine. Without it 64 callers reach about four fifths of
// the rate.
//
// A batch is sent with its sender's context, so it can fail for a reason that concerns only the sender. Then the others
// in it are sent alone. So is a look that has waited for maxWait, in case the senders' connections are silent.
type batcher struct {
	mu      sync.Mutex
	senders int            // callers that send, or have the instruction to
	waiting []*waitingLook // in the order of their arrival
}

const (
	maxSenders = 2
	maxBatch   = 64 // looks
	maxWait    = 250 * time.Millisecond
)

// waitingLook is a look that waits. It gets one instruction at most.
type waitingLook struct {
	key  string
	told chan instruction // has room for one

	isSender bool // its instruction was sendBatch; guarded by batcher.mu
}

// instruction tells a waiting look how to go on.
type instruction struct {
	step step
	row  row // with useRow
}

type step uint8

const (
	useRow    step = iota // its batch has succeeded
	sendBatch             // it is a sender
	sendAlone             // its batch has failed
)

type (
	lookOneFunc  func(ctx context.Context, key string) (row, error)
	lookManyFunc func(ctx context.Context, keys []string) (map[string]row, error)
)

// look returns the row of key, from one or, together with others, from many.
func (b *batcher) look(ctx context.Context, key string, one lookOneFunc, many lookManyFunc) (row, error) {
	w := b.enter(key)
	if w == nil {
		defer b.endSending()
		return one(ctx, key)
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	var next instruction
	select {
	case next = <-w.told:
	case <-timer.C:
		b.stopWaiting(w)
		return one(ctx, key)
	case <-ctx.Done():
		b.stopWaiting(w)
		return row{}, ctx.Err()
	}
	switch next.step {
	case sendBatch:
		defer b.endSending()
		return b.send(ctx, key, one, many)
	case sendAlone:
		return one(ctx, key)
	}
	return next.row, nil
}

// enter makes the caller a sender, who must call endSending, and returns nil. If there are enough senders, it returns a
// look that waits.
func (b *batcher) enter(key string) *waitingLook {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.senders < maxSenders {
		b.senders++
		return nil
	}
	w := &waitingLook{key: key, told: make(chan instruction, 1)}
	b.waiting = append(b.waiting, w)
	return w
}

// endSending is called by a sender that has finished. It makes the first waiting look a sender instead.
func (b *batcher) endSending() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.senders--
		return
	}
	w := b.waiting[0]
	b.waiting = slices.Delete(b.waiting, 0, 1)
	w.isSender = true
	w.told <- instruction{step: sendBatch}
}

// stopWaiting is called by a look that no longer waits. If it was made a sender, another look becomes one instead.
func (b *batcher) stopWaiting(w *waitingLook) {
	b.mu.Lock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	isSender := w.isSender
	b.mu.Unlock()
	if isSender {
		b.endSending()
	}
}

// send sends a look at key together with those that wait, and passes them their rows.
func (b *batcher) send(ctx context.Context, key string, one lookOneFunc, many lookManyFunc) (row, error) {
	others := b.takeWaiting(maxBatch - 1)
	if len(others) == 0 {
		return one(ctx, key)
	}
	keys := []string{key}
	for _, w := range others {
		keys = append(keys, w.key)
	}
	succeeded := false
	defer func() {
		if !succeeded { // many failed or panicked
			for _, w := range others {
				w.told <- instruction{step: sendAlone}
			}
		}
	}()
	rows, err := many(ctx, keys)
	if err != nil {
		return row{}, err
	}
	succeeded = true
	for _, w := range others {
		r := rows[w.key]
		r.note, r.record = bytes.Clone(r.note), bytes.Clone(r.record) // another look may be at the same key
		w.told <- instruction{step: useRow, row: r}
	}
	return rows[key], nil
}

// takeWaiting removes at most n looks from those that wait.
func (b *batcher) takeWaiting(n int) []*waitingLook {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, len(b.waiting))
	taken := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return taken
}
