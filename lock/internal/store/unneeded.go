package store

// Claims that no run needs, and the queue that releases them. Without a release, such a claim keeps its key for a lease and
// its hold, although nothing ran. A release may overtake its claim: the claim can lie in the buffer of a broken
// connection, or of a server that stands still, and be executed later. So each release is sent until Redis has answered it
// and, if the claim may return, again at the intervals of releaseAgain. A release names the token, so that it never
// removes another claim.

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
	claims  map[*unneeded]struct{} // in the queue, those included that are being released now
	kinds   map[bool]int           // how many of them last, and how many do not
	givenUp uint64                 // claims that were released less often than planned, or never; only grows
}

// unneeded is a claim that no run needs.
type unneeded struct {
	key       Key
	token     uuid.UUID
	lasts     bool // it has a hold, or was granted: Close names it
	mayReturn bool // see Entry

	// guarded by releases.mu
	answered int       // releases that Redis has answered; only grows
	due      time.Time // when the next release is sent, for the first time
}

// KeepReleasing queues the claim of a token. The worker releases it at once, unless a reply has shown that it is gone, and
// again later if it may return. If the queue is full, KeepReleasing gives up another claim that lasts as long: the many that
// are soon gone do not displace the others.
func (s *Store) KeepReleasing(key Key, token uuid.UUID, hold time.Duration, gone, mayReturn bool) {
	q := &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &unneeded{key: key, token: token, lasts: hold > 0, mayReturn: mayReturn, due: time.Now()}
	if q.kinds[c.lasts] >= maxReleases {
		for other := range q.claims { // any one of its kind
			if other.lasts == c.lasts {
				q.giveUp(other)
				break
			}
		}
	}
	q.add(c)
	if gone {
		q.planNext(c)
	}
	if !q.working {
		q.working = true
		s.group.Go(q.work)
	}
	background.Signal(q.wake)
}

// NoteUnreleased has TakeUnreleased name a claim whose last release has failed during a Close.
func (s *Store) NoteUnreleased(key Key, token uuid.UUID) {
	q := &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(&unneeded{key: key, token: token, lasts: true})
}

// add adds c. The caller holds mu, as that of remove does.
func (q *releases) add(c *unneeded) {
	q.claims[c] = struct{}{}
	q.kinds[c.lasts]++
}

func (q *releases) remove(c *unneeded) {
	delete(q.claims, c)
	q.kinds[c.lasts]--
}

// planNext notes that Redis has answered a release of c, and plans the next one, if c may return. The caller holds mu.
func (q *releases) planNext(c *unneeded) {
	if _, ok := q.claims[c]; !ok {
		return // given up meanwhile
	}
	if !c.mayReturn || c.answered == len(releaseAgain) {
		q.remove(c)
		return
	}
	c.due = time.Now().Add(releaseAgain[c.answered])
	c.answered++
}

// giveUp removes c, which was not released as planned. The caller holds mu.
func (q *releases) giveUp(c *unneeded) {
	if _, ok := q.claims[c]; ok {
		q.remove(c)
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
func (q *releases) nextBatch() (batch []*unneeded, wait time.Duration) {
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
func (q *releases) last() []*unneeded {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.working = false
	return slices.Collect(maps.Keys(q.claims))
}

// send releases the claims of a batch at the same time, and returns how many of the releases Redis has answered.
func (q *releases) send(batch []*unneeded) (answered int) {
	var sent sync.WaitGroup
	for _, c := range batch {
		sent.Go(func() {
			o := q.store.Release(q.store.group.Base(), c.key, c.token, nil, c.lasts)
			q.mu.Lock()
			defer q.mu.Unlock()
			switch {
			case o.Err == nil:
				answered++
				q.planNext(c)
			case time.Since(c.due) >= maxReleaseRetry:
				q.giveUp(c)
			}
		})
	}
	sent.Wait()
	return answered
}

// TakeUnreleased empties the queue, gives up its claims, and returns an error with their keys, which wraps ErrUnreleased:
// they were not released, or may return. It does not name those that are gone after a lease, and returns nil if it names
// none. Locker.Close calls it last.
func (s *Store) TakeUnreleased() error {
	q := &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.claims {
		if !c.lasts {
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
			keys = append(keys, c.key.Text)
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
