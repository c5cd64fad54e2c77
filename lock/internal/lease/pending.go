package lease

// Pending values are stored by one worker for each node, and by callers that claim a key with a pending value. A value
// has at most one try in flight, which the worker and the callers share. The functions of this file are called without
// Core.mu and Backlog.mu.

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

const (
	// A worker sends one batch after the other, so a claim waits for one of them at most.
	maxBatchValues = 32
	maxBatchBytes  = 256 << 10 // a single value may have more
)

// settleTry is one try to store a pending value.
type settleTry struct {
	value     []byte        // what is sent
	shortened bool          // it has taken the place of a longer one
	ended     chan struct{} // closed at the end

	// set before ended is closed, see trySettle
	done bool
	err  error
}

// errTryEnded is the error of a try that a hook of the client has ended.
var errTryEnded = errors.New("lock: a hook of the Redis client has ended the goroutine")

// beginTry returns the try of p that is in flight, and begins one if none is.
func (b *Backlog) beginTry(p *settlement) *settleTry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.try != nil {
		return p.try
	}
	try := &settleTry{value: p.value, shortened: p.shortened, ended: make(chan struct{}), err: errTryEnded}
	p.try = try
	p.core.config.Group.Go(func() {
		defer b.endTry(p)
		try.done, try.err = p.core.retrySettle(p, try.value)
	})
	return try
}

// endTry ends the try of p.
func (b *Backlog) endTry(p *settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(p.try.ended)
	p.try = nil
}

// StorePending tries once to store what is pending under a key. If that succeeds, it returns the value with its head. It
// returns nil if nothing is pending, or no longer is: another has the key, or the value was given up; or a short value was
// stored, and the key may hold the longer one, which an earlier try has sent. An error means that the value is still
// pending. If ctx is done first, StorePending returns its cause.
func (b *Backlog) StorePending(ctx context.Context, key string) (value []byte, err error) {
	for {
		p := b.oldestOf(key)
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
		case try.err == nil && !try.shortened:
			return try.value, nil
		}
	}
}

// StorePendingBy stores what is pending under a key by the lease of h, which was granted after the pending value's own claim
// had gone. If nothing is pending, it leaves h as it is, and returns nil.
func (b *Backlog) StorePendingBy(ctx context.Context, key string, h *Handle) (value []byte, err error) {
	p := b.oldestOf(key)
	if p == nil {
		return nil, nil
	}
	ttl := p.remainingTTL()
	if ttl < minSettleTTL {
		return nil, nil
	}
	value, short := b.read(p)
	var appendShort func([]byte) []byte
	if short != nil {
		appendShort = appendContent(short)
	}
	if err = h.Settle(ctx, len(value), appendContent(value), appendShort, ttl); err != nil {
		return nil, err
	}
	p.core.keepReleasing(true)
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	p.core.end(context.Canceled, nil)
	return value, nil
}

// appendContent returns a function that appends the content of value, without its head.
func appendContent(value []byte) func([]byte) []byte {
	return func(head []byte) []byte { return append(head, store.ParseValue(value).Content...) }
}

// work stores the pending values of a node until none is left. It pauses at first, and after a batch of which no value was
// stored, and otherwise goes on at once. Once the Locker is closed, work tries each value once more.
func (b *Backlog) work(config *Config, node any) {
	closing := config.Group.Context()
	var pauses background.Backoff // between two batches, while the node stores nothing
	for failed := true; ; {
		if failed {
			_ = background.Pause(closing, pauses.Next())
		}
		if closing.Err() != nil {
			b.storeLast(config, node)
			return
		}
		batch := b.nextBatch(node)
		if len(batch) == 0 {
			return
		}
		if failed = b.storeBatch(batch) == 0; !failed {
			pauses = background.Backoff{}
		}
	}
}

// storeBatch tries to store the values of a batch at the same time, and returns how many are no longer pending.
func (b *Backlog) storeBatch(batch []*settlement) (done int) {
	tries := make([]*settleTry, len(batch))
	for i, p := range batch {
		tries[i] = b.beginTry(p)
	}
	for _, try := range tries {
		<-try.ended
		if try.done {
			done++
		}
	}
	return done
}

// storeLast tries each value once. It stops when no value was stored for OpTimeout, and gives up those that are left.
func (b *Backlog) storeLast(config *Config, node any) {
	values, stored := b.ofNode(node), time.Now()
	for batch := range slices.Chunk(values, maxBatchValues) {
		if b.storeBatch(batch) > 0 {
			stored = time.Now()
		} else if time.Since(stored) >= config.OpTimeout {
			break
		}
	}
	for _, p := range values {
		p.core.giveUp(p)
	}
}

// nextBatch moves the values of a node that are tried next behind all others, and returns them. If there is none, the worker
// of the node ends.
func (b *Backlog) nextBatch(node any) (batch []*settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := 0
	for _, p := range b.pending {
		if p.node != node {
			continue
		}
		if bytes += len(p.value); len(batch) == maxBatchValues || len(batch) > 0 && bytes > maxBatchBytes {
			break
		}
		batch = append(batch, p)
	}
	isInBatch := func(p *settlement) bool { return slices.Contains(batch, p) }
	b.pending = append(slices.DeleteFunc(b.pending, isInBatch), batch...)
	if len(batch) == 0 {
		delete(b.workers, node)
	}
	return batch
}

// ofNode returns the pending values of a node.
func (b *Backlog) ofNode(node any) []*settlement {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.pending), func(p *settlement) bool { return p.node != node })
}
