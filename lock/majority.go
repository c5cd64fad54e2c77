package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

func (q *Quorum) majority() int { return len(q.nodes)/2 + 1 }

// poll asks every master at the same time and returns their answers as they come. Each is given to after as well, in
// the background, when decided has been closed.
func (q *Quorum) poll(
	ask func(node *Locker) answer, decided <-chan struct{}, after func(node *Locker, a answer),
) <-chan answer {
	answers := make(chan answer, len(q.nodes))
	for _, node := range q.nodes {
		q.work.run(func() {
			a := ask(node)
			answers <- a
			<-decided
			after(node, a)
		})
	}
	return answers
}

// claim returns a lease if a majority has granted it, and nil without an error if somebody holds the key. That ctx ends
// does not keep the claim from the masters that are slow: the lease is to stand on all of them.
func (q *Quorum) claim(ctx context.Context, key storageKey) (*Lease, error) {
	var lease *Lease
	start, values, decided := time.Now(), detached(ctx), make(chan struct{})
	c := claimText{token: newToken()}
	c.text = appendClaim(nil, c.token, false, start, nil)
	release := func(node *Locker, a answer) {
		stands := a.unsure || a.err == nil && (a.absent || c.isOurs(a.text))
		if stands && (lease == nil || lease.isOver()) {
			q.releaseOn(values, node, key, c.token, start.Add(q.ttl))
		}
	}
	answers := q.poll(func(node *Locker) answer {
		t := node.newTrip(values, key)
		t.claim = c
		t.late = func(_ *trip, a answer) {
			<-decided
			release(node, a)
		}
		return t.ask((*trip).setOrGet)
	}, decided, release)

	ok, err := q.isGranted(ctx, answers, c)
	if until := start.Add(validity(q.ttl)); ok && !time.Now().Before(until) {
		err = fmt.Errorf("granted too late: %w", context.DeadlineExceeded)
	} else if ok {
		lease = newGrant(ctx, q, q.base, key, c.token, 0, start, until)
	}
	close(decided)
	if err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	return lease, nil
}

// isGranted counts until a majority has granted the claim, or a majority has answered and the claim can have none any
// more. It is an error if no majority has answered, or if one holds what is no claim.
func (q *Quorum) isGranted(ctx context.Context, answers <-chan answer, c claimText) (bool, error) {
	granted, denied, foreign, settled, failed := 0, 0, 0, 0, []error(nil)
	for rest := len(q.nodes) - 1; ; rest-- {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		switch {
		case a.err != nil && !a.foreign:
			failed = append(failed, a.err)
		case a.err == nil && (a.absent || c.isOurs(a.text)):
			granted++
		default:
			denied++
			if f, err := met(a.reply); err != nil {
				foreign++
			} else if f.State == Settled {
				settled++
			}
		}
		switch m := q.majority(); {
		case granted == m:
			return true, nil
		case len(failed) == m:
			return false, fmt.Errorf("no majority: %w", errors.Join(failed...))
		case foreign == m:
			return false, ErrForeign
		case settled == m:
			return false, ErrSettled
		case granted+denied >= m && granted+rest < m:
			return false, nil
		}
	}
}

// extend extends everywhere, and answers as soon as a majority has, or when ctx is done. The others are not left out
// then: one that is slow must not lose the claim.
func (q *Quorum) extend(ctx context.Context, key storageKey, token uuid.UUID, d time.Duration) answer {
	decided := make(chan struct{})
	defer close(decided)
	answers := q.poll(func(node *Locker) answer {
		return node.extend(detached(ctx), key, token, d)
	}, decided, func(*Locker, answer) {})
	return q.agree(ctx, token, answers, func(s standing) bool { return s == claimed })
}

// giveBack releases everywhere, and answers as soon as a majority has. A master that failed is then asked again, until
// the lease has run out there.
func (q *Quorum) giveBack(ctx context.Context, key storageKey, token uuid.UUID, expiry time.Time) (all answer) {
	decided := make(chan struct{})
	defer close(decided)
	answers := q.poll(func(node *Locker) answer {
		return node.release(ctx, key, token)
	}, decided, func(node *Locker, a answer) {
		if all.err == nil && a.err != nil {
			q.releaseOn(ctx, node, key, token, expiry)
		}
	})
	return q.agree(ctx, token, answers, func(s standing) bool { return s == claimed || s == gone })
}

// releaseOn releases on one master, and tries again until the claim has expired there.
func (q *Quorum) releaseOn(ctx context.Context, node *Locker, key storageKey, token uuid.UUID, expiry time.Time) {
	try := func() bool {
		a := node.release(ctx, key, token)
		return a.err == nil || a.foreign
	}
	if !try() {
		insist(q.work.ctx, expiry, try)
	}
}

// agree returns one answer for all masters: that the key holds the lease's claim if a majority says what is good, that
// it is another's if a majority says anything else, and an error if neither can be had any more, or when ctx is done.
func (q *Quorum) agree(
	ctx context.Context, token uuid.UUID, answers <-chan answer, good func(standing) bool,
) (all answer) {
	yes, no, failed := 0, 0, []error(nil)
	for range q.nodes {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return answer{unsure: true, err: context.Cause(ctx)}
		}
		all.unsure = all.unsure || a.unsure
		switch {
		case a.err != nil && !a.foreign:
			failed = append(failed, a.err)
		case a.err == nil && good(a.standing(token)):
			yes++
		default:
			no++
		}
		switch q.majority() {
		case yes:
			all.text = appendHead(nil, claimMagic, token)
			return all
		case no:
			return all
		case len(failed):
			all.err = fmt.Errorf("no majority: %w", errors.Join(failed...))
			return all
		}
	}
	all.err = fmt.Errorf("no majority: %w", errors.Join(failed...))
	return all
}
