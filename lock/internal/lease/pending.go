package lease

// Pending values are stored by one worker for each node, and by callers that claim a key with a pending value. A value
// has at most one try in flight, which the worker and the callers share. The functions of this file are called without
// Core.mu and Backlog.mu.

import (
	"container/list"
	"context"
	"errors"
	"math"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

const (
	maxSettlePause = time.Second // between two batches, while the node stores nothing

	// A worker sends one batch after the other, so a claim waits for one of them at most.
	maxBatchValues = 32
	maxBatchBytes  = 256 << 10 // a single value may have more
)

// settleTry is one try to store a pending value.
type settleTry struct {
	ended chan struct{} // closed at the end

	// set before ended is closed, see trySettle
	done bool
	err  error
}

// errTryEnded is the error of a try that a hook of the client has ended.
var errTryEnded = errors.New("lock: a hook of the Redis client has ended the goroutine")

// beginTry returns the try of p that is in flight, and begins one if none is.
func (b *Backlog) beginTry(p *pendingSettle) *settleTry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.try != nil {
		return p.try
	}
	try := &settleTry{ended: make(chan struct{}), err: errTryEnded}
	p.try = try
	p.core.config.Group.Go(func() {
		defer b.endTry(p)
		try.done, try.err = p.core.retrySettle(p)
	})
	return try
}

// endTry ends the try of p.
func (b *Backlog) endTry(p *pendingSettle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(p.try.ended)
	p.try = nil
}

// Settle tries once to store what is pending under a key. If that succeeds, it returns the value with its head. It
// returns nil if nothing is pending, or no longer is: another has the key, or the value was given up. An error means that
// the value is still pending. If ctx is done first, Settle returns its cause.
func (b *Backlog) Settle(ctx context.Context, key string) (value []byte, err error) {
	for {
		p := b.oldest(key)
		if p == nil {
			return nil, nil
		}
		try := b.beginTry(p)
		select {
		case <-try.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		switch {
		case !try.done:
			return nil, try.err
		case try.err == nil:
			return p.value, nil
		}
	}
}

// SettleBy stores what is pending under a key by the lease of h, which was granted after the pending value's own claim
// had gone. If nothing is pending, it leaves h as it is, and returns nil.
func (b *Backlog) SettleBy(ctx context.Context, key string, h *Handle) (value []byte, err error) {
	p := b.oldest(key)
	if p == nil {
		return nil, nil
	}
	ttl, content := p.remainingTTL(), store.ParseValue(p.value).Content
	if ttl < minSettleTTL {
		return nil, nil
	}
	err = h.Settle(ctx, len(content), func(head []byte) []byte { return append(head, content...) }, ttl)
	if err != nil {
		return nil, err
	}
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	p.core.end(context.Canceled, nil)
	return p.value, nil
}

// nodeQueue holds the pending values of one node. Backlog.byNode has it while its worker runs.
type nodeQueue struct {
	backlog *Backlog
	config  *Config
	node    any
	values  list.List // of *pendingSettle, the one that is tried next first; guarded by Backlog.mu
}

// enqueue adds p to the queue of its node, and starts the worker if there is none. The caller holds mu.
func (b *Backlog) enqueue(p *pendingSettle) {
	q, found := b.byNode[p.node]
	if !found {
		q = &nodeQueue{backlog: b, config: p.core.config, node: p.node}
		b.byNode[p.node] = q
		q.config.Group.Go(q.work)
	}
	p.queue, p.inQueue = q, q.values.PushBack(p)
}

// work stores the values of q until none is left. It pauses after a batch of which no value was stored, and otherwise
// goes on at once. Once the Locker is closed, work tries each value once more.
func (q *nodeQueue) work() {
	closing := q.config.Group.Context()
	pauses := background.NewBackoff(maxSettlePause)
	for failed := true; ; {
		if failed {
			_ = background.Pause(closing, min(pauses.Next(), q.untilDeadline()))
		}
		if closing.Err() != nil {
			q.settleLast()
			return
		}
		batch := q.nextBatch()
		if len(batch) == 0 {
			return
		}
		if failed = q.settle(batch) == 0; !failed {
			pauses = background.NewBackoff(maxSettlePause)
		}
	}
}

// settle tries to store the values of a batch at the same time, and returns how many are no longer pending.
func (q *nodeQueue) settle(batch []*pendingSettle) (done int) {
	tries := make([]*settleTry, len(batch))
	for i, p := range batch {
		tries[i] = q.backlog.beginTry(p)
	}
	for _, try := range tries {
		<-try.ended
		if try.done {
			done++
		}
	}
	return done
}

// settleLast tries each value once. It stops when no value was stored for OpTimeout, and gives up those that are left.
func (q *nodeQueue) settleLast() {
	left := len(q.all())
	for stored := time.Now(); left > 0 && time.Since(stored) < q.config.OpTimeout; {
		batch := q.nextBatch()
		if len(batch) == 0 {
			return
		}
		if q.settle(batch) > 0 {
			stored = time.Now()
		}
		left -= len(batch)
	}
	for _, p := range q.all() {
		p.core.giveUp(p)
	}
}

// nextBatch moves the values that are tried next to the end of q, and returns them. If q is empty, nextBatch removes it
// from the Backlog, and its worker ends.
func (q *nodeQueue) nextBatch() (batch []*pendingSettle) {
	q.backlog.mu.Lock()
	defer q.backlog.mu.Unlock()
	bytes := 0
	for range min(q.values.Len(), maxBatchValues) {
		front := q.values.Front()
		p := front.Value.(*pendingSettle)
		if bytes += len(p.value); len(batch) > 0 && bytes > maxBatchBytes {
			break
		}
		q.values.MoveToBack(front)
		batch = append(batch, p)
	}
	if len(batch) == 0 {
		delete(q.backlog.byNode, q.node)
	}
	return batch
}

// untilDeadline returns the time until the first value of q has to be given up.
func (q *nodeQueue) untilDeadline() time.Duration {
	until := time.Duration(math.MaxInt64)
	for _, p := range q.all() {
		until = min(until, time.Until(p.retryDeadline()))
	}
	return until
}

// all returns the values of q.
func (q *nodeQueue) all() (values []*pendingSettle) {
	q.backlog.mu.Lock()
	defer q.backlog.mu.Unlock()
	for e := q.values.Front(); e != nil; e = e.Next() {
		values = append(values, e.Value.(*pendingSettle))
	}
	return values
}
