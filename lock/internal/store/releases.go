package store

// Claims under a hold that no run needs. Without a release, such a claim keeps its key for as long as its hold, although
// nothing ran. A release may overtake its claim: the claim can lie in the buffer of a connection that was given up, and
// be executed later. So each release is sent until Redis has answered it, and again releaseAgain after that. A release
// names the token, so that it never removes another claim.

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/background"
)

// ErrUnreleased is the error of a Close that leaves claims. Package lock exports and documents it.
var ErrUnreleased = errors.New("lock: claims could not be released")

// releaseAgain is when a release is sent again, counted from the answer to the one before: about 2 s, 15 s, 2 min and
// 10 min after the first answer.
var releaseAgain = [...]time.Duration{2 * time.Second, 13 * time.Second, 105 * time.Second, 8 * time.Minute}

const (
	maxReleases     = 1 << 16   // claims in the queue: about 20 MB
	releaseBatch    = 128       // releases that are sent at the same time
	maxReleaseRetry = time.Hour // for which a release without an answer is retried
	maxNamed        = 100       // keys that the error of Close names
)

// releases is the queue of these claims. One goroutine, work, sends the releases. It runs while there are any.
type releases struct {
	store *Store
	wake  chan struct{} // has room for one token, which makes work look at the queue

	mu      sync.Mutex
	works   bool                         // guarded by mu, as all below: work runs
	now     list.List                    // of *unneeded: released as soon as possible, the longest waiting first
	later   [len(releaseAgain)]list.List // of *unneeded: released at their time, the next one first; by answered-1
	sending []*unneeded                  // being released now
	givenUp uint64                       // claims that were released less often than planned, or never; only grows
	left    []string                     // keys of claims that a closed Locker could not release
}

// unneeded is a claim that no run needs.
type unneeded struct {
	key      Key
	token    uuid.UUID
	answered int       // releases that Redis has answered
	due      time.Time // when the next one is sent first
}

// KeepReleasing releases the claim of a token, which has a hold, in the background: at once, unless it was released
// already, and again later.
func (s *Store) KeepReleasing(key Key, token uuid.UUID, released bool) {
	c, q := &unneeded{key: key, token: token, due: time.Now()}, &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.len() >= maxReleases {
		q.dropOne()
	}
	if released {
		q.planNext(c)
	} else {
		q.now.PushBack(c)
	}
	if !q.works {
		q.works = true
		s.group.Go(q.work)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// len returns how many claims are in the queue. The caller holds mu.
func (q *releases) len() int {
	n := q.now.Len() + len(q.sending)
	for i := range q.later {
		n += q.later[i].Len()
	}
	return n
}

// dropOne drops a claim to make room: of those that were released most often, the oldest. The caller holds mu.
func (q *releases) dropOne() {
	l := &q.now
	for i := range q.later {
		if q.later[i].Len() > 0 {
			l = &q.later[i]
		}
	}
	if l.Len() > 0 { // not if all are being released now
		l.Remove(l.Front())
		q.givenUp++
	}
}

// planNext notes that Redis has answered a release of c, and plans the next one. The caller holds mu.
func (q *releases) planNext(c *unneeded) {
	if c.answered < len(releaseAgain) {
		c.due = time.Now().Add(releaseAgain[c.answered])
		q.later[c.answered].PushBack(c)
	}
	c.answered++
}

// work releases the claims in the queue until it is empty. Once the Locker is closed, it releases each only once more.
func (q *releases) work() {
	closing := q.store.group.Context()
	pauses := background.NewBackoff(time.Second)
	for {
		isLast := closing.Err() != nil
		batch, wait := q.take(isLast)
		switch {
		case len(batch) > 0 && q.send(batch, isLast):
			pauses = background.NewBackoff(time.Second)
		case len(batch) > 0:
			_ = background.Pause(closing, pauses.Next())
		case wait > 0:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-q.wake:
			case <-closing.Done():
			}
			timer.Stop()
		default:
			return
		}
	}
}

// take takes the next batch to release: of those that are due or, if it is the last time, of all. If none is due, wait
// is how long until the first one is. If there are none at all, take notes that work ends.
func (q *releases) take(isLast bool) (batch []*unneeded, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.later {
		l := &q.later[i]
		for l.Len() > 0 {
			left := time.Until(l.Front().Value.(*unneeded).due)
			if left > 0 && !isLast {
				if wait == 0 || left < wait {
					wait = left
				}
				break
			}
			q.now.PushBack(l.Remove(l.Front()))
		}
	}
	for q.now.Len() > 0 && len(q.sending) < releaseBatch {
		q.sending = append(q.sending, q.now.Remove(q.now.Front()).(*unneeded))
	}
	q.works = len(q.sending) > 0 || wait > 0
	return q.sending, wait
}

// send releases the claims of a batch at the same time, and puts them back into the queue unless they are done. It
// reports whether Redis has answered all. If it is the last time and Redis has answered none, it leaves all others too.
func (q *releases) send(batch []*unneeded, isLast bool) (all bool) {
	answered := make([]bool, len(batch))
	var sent sync.WaitGroup
	for i, c := range batch {
		sent.Go(func() {
			o := q.store.actOn(q.store.group.Base(), c.key, c.token).release(true)
			answered[i] = o.Err == nil || o.Foreign
		})
	}
	sent.Wait()

	q.mu.Lock()
	defer q.mu.Unlock()
	q.sending = nil
	for i, c := range batch {
		switch {
		case answered[i] && isLast:
		case answered[i]:
			q.planNext(c)
		case isLast:
			q.leave(c)
		case time.Since(c.due) >= maxReleaseRetry:
			q.givenUp++
		default:
			q.now.PushBack(c)
		}
	}
	if isLast && !slices.Contains(answered, true) {
		for q.now.Len() > 0 {
			q.leave(q.now.Remove(q.now.Front()).(*unneeded))
		}
	}
	return !slices.Contains(answered, false)
}

// leave gives c up because the Locker is closed. The caller holds mu.
func (q *releases) leave(c *unneeded) {
	q.givenUp++
	q.left = append(q.left, c.key.Text)
}

// TakeUnreleased returns an error that wraps ErrUnreleased, with the keys of the claims whose last release had no
// answer. It returns nil if there are none. Locker.Close calls it last.
func (s *Store) TakeUnreleased() error {
	q := &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := q.left
	q.left = nil
	for _, c := range q.sending {
		keys = append(keys, c.key.Text)
	}
	for e := q.now.Front(); e != nil; e = e.Next() {
		keys = append(keys, e.Value.(*unneeded).key.Text)
	}
	n := len(keys)
	switch {
	case n == 0:
		return nil
	case n > maxNamed:
		keys = append(keys[:maxNamed], "...")
	}
	return fmt.Errorf("%w: %d: %s", ErrUnreleased, n, strings.Join(keys, " "))
}

// ReleaseStats returns how many claims are in the queue, and how many were given up.
func (s *Store) ReleaseStats() (queued int, givenUp uint64) {
	q := &s.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.len(), q.givenUp
}
