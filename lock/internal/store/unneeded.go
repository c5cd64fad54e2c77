package store

// Claims that no run needs, and the queue that releases them. Without a release, such a claim keeps its key for a lease and
// its hold, although nothing ran. A release may overtake its claim: the claim can lie in the buffer of a broken
// connection, or of a server that stands still, and be executed later. So each release is sent until Redis has answered it
// and, if the claim may return, again at the intervals of releaseAgain. A release names the token, so that it never
// removes another claim. The claim of a lease whose Release got no reply is released in the same way.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/background"
)

// ErrUnreleased is the error of a Close that leaves claims. Package lock exports and documents it.
var ErrUnreleased = errors.New("lock: claims are left, or may return")

// releaseAgain is when a release is sent again, counted from the reply to the one before: about 2 s, 15 s, 2 min and 10
// min after the first reply.
var releaseAgain = [...]time.Duration{2 * time.Second, 13 * time.Second, 105 * time.Second, 8 * time.Minute}

const (
	maxReleases     = 1 << 16   // claims of each kind in the queue: about 20 MB
	releaseBatch    = 128       // releases that are sent at the same time
	maxReleaseRetry = time.Hour // for which a release without a reply is retried
	maxNamed        = 100       // keys that the error of Close names
)

// releases is the queue of the claims that are to be released. One goroutine, work, sends the releases. It runs while the
// queue has claims.
type releases struct {
	store *Store
	wake  chan struct{} // has room for one token, which makes work check the queue

	mu      sync.Mutex
	working bool                   // guarded by mu, as all below: the goroutine of work runs
	claims  map[*Unneeded]struct{} // in the queue, those included that are being released now
	kinds   map[bool]int           // how many of them have a hold, and how many have none
	givenUp uint64                 // claims that were released less often than planned, or never; only grows
}

// Unneeded is a claim that no run needs.
type Unneeded struct {
	Key       Key
	Token     uuid.UUID
	HasHold   bool
	MayReturn bool      // see Entry
	Gone      bool      // a reply has shown that it is gone; guarded by releases.mu, as all below
	Expiry    time.Time // when it expires, if it was granted and has no hold

	answered int       // releases that Redis has answered; only grows
	due      time.Time // when the next release is sent, for the first time
}

// KeepReleasing queues a claim. The worker releases it at once unless it is gone, and again later if it may return. If the
// queue is full, KeepReleasing gives up another claim of its kind, with a hold or without: the many that are soon gone
// do not displace the others.
func (s *Store) KeepReleasing(c Unneeded) {
	q := &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.kinds[c.HasHold] >= maxReleases {
		for other := range q.claims { // any one of its kind
			if other.HasHold == c.HasHold {
				q.giveUp(other)
				break
			}
		}
	}
	c.due = time.Now()
	q.claims[&c] = struct{}{}
	q.kinds[c.HasHold]++
	if c.Gone {
		q.planNext(&c)
	}
	if !q.working {
		q.working = true
		s.group.Go(q.work)
	}
	background.Signal(q.wake)
}

// remove removes c, and reports whether it was in the queue. The caller holds mu.
func (q *releases) remove(c *Unneeded) bool {
	_, isQueued := q.claims[c]
	if isQueued {
		delete(q.claims, c)
		q.kinds[c.HasHold]--
	}
	return isQueued
}

// planNext notes that Redis has answered a release of c, and plans the next one, if c may return. The caller holds mu.
func (q *releases) planNext(c *Unneeded) {
	if !c.MayReturn || c.answered == len(releaseAgain) {
		q.remove(c)
		return
	}
	c.Gone, c.due = true, time.Now().Add(releaseAgain[c.answered])
	c.answered++
}

// giveUp removes c, which was not released as planned. The caller holds mu.
func (q *releases) giveUp(c *Unneeded) {
	if q.remove(c) {
		q.givenUp++
	}
}

// work releases the claims in the queue until it is empty. Once the Locker is closed, work releases each claim once
// more.
func (q *releases) work() {
	closing := q.store.group.Context()
	var pauses background.Backoff
	for closing.Err() == nil {
		batch, wait := q.nextBatch()
		switch {
		case len(batch) > 0:
			if q.send(batch) == len(batch) {
				pauses = background.Backoff{}
			} else {
				_ = background.Pause(closing, pauses.Next())
			}
		case wait > 0:
			select {
			case <-time.After(wait):
			case <-q.wake:
			case <-closing.Done():
			}
		default:
			return
		}
	}
	for batch := range slices.Chunk(q.last(), releaseBatch) {
		if q.send(batch) == 0 {
			return // Redis does not answer
		}
	}
}

// nextBatch returns claims that are due. If none is due, wait is the time until the first one is, and 0 if the queue is
// empty: nextBatch then notes that work ends.
func (q *releases) nextBatch() (batch []*Unneeded, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.claims { // in a random order, so that the claims of a node that is down do not delay the others
		if left := time.Until(c.due); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
		} else if batch = append(batch, c); len(batch) == releaseBatch {
			break
		}
	}
	q.working = len(q.claims) > 0
	return batch, wait
}

// last returns all claims in the queue, and notes that work ends.
func (q *releases) last() []*Unneeded {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.working = false
	return slices.Collect(maps.Keys(q.claims))
}

// send releases the claims of a batch at the same time, and returns how many of the releases Redis has answered.
func (q *releases) send(batch []*Unneeded) (answered int) {
	var sent sync.WaitGroup
	for _, c := range batch {
		sent.Go(func() {
			o := q.store.Release(q.store.group.Base(), c.Key, c.Token, nil, c.HasHold)
			q.mu.Lock()
			defer q.mu.Unlock()
			switch {
			case o.Err == nil:
				answered++
				q.planNext(c)
			case !c.MayReturn && !c.Expiry.IsZero() && !c.blocks():
				q.remove(c)
			case time.Since(c.due) >= maxReleaseRetry:
				q.giveUp(c)
			}
		})
	}
	sent.Wait()
	return answered
}

// blocks reports whether the key has the claim, or may have it later for longer than a lease. The caller holds releases.mu.
func (c *Unneeded) blocks() bool { return c.HasHold || !c.Gone && time.Now().Before(c.Expiry) }

// TakeUnreleased empties the queue, gives up its claims, and returns an error with their keys, which wraps ErrUnreleased:
// they were not released, or may return. It does not name those that are gone after a lease, and returns nil if it names
// none. Locker.Close calls it last.
func (s *Store) TakeUnreleased() error {
	q := &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.claims {
		if !c.blocks() {
			q.remove(c)
		}
	}
	n := len(q.claims)
	if n == 0 {
		return nil
	}
	keys := make([]string, 0, min(n, maxNamed+1))
	for c := range q.claims {
		if len(keys) < maxNamed {
			keys = append(keys, c.Key.Text)
		}
		q.giveUp(c)
	}
	if n > maxNamed {
		keys = append(keys, "...")
	}
	return fmt.Errorf("%w: %d: %s", ErrUnreleased, n, strings.Join(keys, " "))
}

// ReleaseStats returns how many claims are in the queue, and how many were given up.
func (s *Store) ReleaseStats() (queued int, givenUp uint64) {
	q := &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.claims), q.givenUp
}
