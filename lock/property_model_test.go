package lock_test

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// propModel is what the doc comments say of keys and leases, for one Redis and one process. Each has a
// clock, which counts from the start of the history.
type propModel struct {
	redis, local time.Duration
	keys         map[string]*propEntry // absent ones have no entry
	leases       []*propLease
}

// propEntry is what a key holds.
type propEntry struct {
	kind   propKind
	owner  *propLease    // of a claim or a value: the lease that wrote it
	data   string        // the note, the value, or what the foreign text is
	hold   time.Duration // of a claim
	isLock bool          // of a claim: TryAcquire or Resume has written it
	expiry time.Duration // by Redis's clock; 0 is never
}

type propKind string

const (
	propClaim   propKind = "a claim"
	propValue   propKind = "a value"
	propForeign propKind = "a foreign text"
	propHash    propKind = "a foreign hash"
)

// propLease is a lease that was granted, dead ones included.
type propLease struct {
	real  *lock.Lease
	step  int // that has granted it
	token string
	key   string
	ttl   time.Duration

	until, expiry time.Duration // by the local clock: what is left for drift lies between them
	renewing      bool
	cause         error // of the Context's end
	over          bool  // released, settled, or refused to be
	verdict       error // what Release answers then
	missing       bool  // the claim does not stand since lostAt, which a renewal has not told yet
	lostAt        time.Duration
}

// errPropOther stands for any error that is none of the package's own.
var errPropOther = errors.New("another error")

// propClass returns which of the package's errors err is.
func propClass(err error) error {
	for _, class := range []error{lock.ErrLost, lock.ErrSettled, lock.ErrForeign, lock.ErrHeld, lock.ErrClosed} {
		if errors.Is(err, class) {
			return class
		}
	}
	if err != nil {
		return errPropOther
	}
	return nil
}

func propValidity(d time.Duration) time.Duration { return d - d/100 - 2*time.Millisecond }

// stands tells whether the key holds the lease's claim.
func (m *propModel) stands(l *propLease) bool {
	e := m.keys[l.key]
	return e != nil && e.kind == propClaim && e.owner == l
}

func (m *propModel) lose(l *propLease) { m.end(l, lock.ErrLost) }

func (m *propModel) end(l *propLease, cause error) {
	l.renewing = false
	if l.cause == nil {
		l.cause = cause
	}
}

// claim is Claim by l, which has no part in the model before it is granted.
func (m *propModel) claim(l *propLease, note string, hold time.Duration, renew bool) (state lock.State, data string, err error) {
	e := m.keys[l.key]
	switch {
	case e == nil:
		m.keys[l.key] = &propEntry{kind: propClaim, owner: l, data: note, hold: hold, expiry: m.redis + l.ttl + hold}
		l.until, l.expiry, l.renewing = m.local+propValidity(l.ttl), m.local+l.ttl, renew
		m.leases = append(m.leases, l)
		return lock.Granted, "", nil
	case e.kind == propValue:
		return lock.Settled, e.data, nil
	case e.kind != propClaim:
		return 0, "", lock.ErrForeign
	case e.hold > 0 && e.expiry-m.redis <= e.hold:
		return lock.Abandoned, e.data, nil
	}
	return lock.Held, e.data, nil
}

// resume is Resume by l of the lease old.
func (m *propModel) resume(l, old *propLease, renew bool) error {
	e := m.keys[l.key]
	switch {
	case e != nil && e.kind != propClaim && e.kind != propValue:
		return lock.ErrForeign
	case !m.stands(old), !e.isLock:
		return lock.ErrLost
	}
	delete(m.keys, l.key)
	_, _, _ = m.claim(l, "", 0, renew)
	m.keys[l.key].isLock = true
	return nil
}

func (m *propModel) settle(l *propLease, value string, ttl time.Duration) error {
	if l.over {
		return lock.ErrLost
	}
	l.over = true
	if m.keys[l.key] != nil && !m.stands(l) {
		l.verdict = lock.ErrLost
		m.lose(l)
		return lock.ErrLost
	}
	m.keys[l.key] = &propEntry{kind: propValue, owner: l, data: value, expiry: m.redis + ttl}
	m.end(l, context.Canceled)
	return nil
}

func (m *propModel) release(l *propLease) error {
	if l.over {
		return l.verdict
	}
	l.over = true
	m.end(l, context.Canceled)
	switch {
	case m.stands(l):
		delete(m.keys, l.key)
	case m.keys[l.key] != nil:
		l.verdict = lock.ErrLost
	}
	return l.verdict
}

func (m *propModel) abandon(l *propLease) { l.renewing = false }

func (m *propModel) extend(l *propLease, d time.Duration) error {
	if l.cause != nil || !m.stands(l) {
		m.lose(l)
		return lock.ErrLost
	}
	e := m.keys[l.key]
	e.expiry = max(e.expiry, m.redis+e.hold+d)
	m.move(l, d)
	return nil
}

// move lets the lease last for d from now. It never shortens it.
func (m *propModel) move(l *propLease, d time.Duration) {
	l.until = max(l.until, m.local+propValidity(d))
	l.expiry = max(l.expiry, m.local+d)
}

func (m *propModel) put(key string, e *propEntry) { m.keys[key] = e }

func (m *propModel) forget(key string) error {
	if e := m.keys[key]; e != nil && e.kind != propClaim && e.kind != propValue {
		return lock.ErrForeign
	}
	delete(m.keys, key)
	return nil
}

func (m *propModel) flush() { clear(m.keys) }

// pass lets d pass for Redis, and for us as well if both. A lease that is renewed ends neither here nor there.
func (m *propModel) pass(d time.Duration, both bool) {
	m.redis += d
	if both {
		m.local += d
	}
	for key, e := range m.keys {
		if e.expiry > 0 && e.expiry <= m.redis && !(e.kind == propClaim && e.owner.renewing) {
			delete(m.keys, key)
		}
	}
	for _, l := range m.leases {
		renewed := l.renewing && m.stands(l)
		told := l.renewing && l.missing && m.local >= l.lostAt+l.ttl/3 || m.local >= l.until
		if l.cause == nil && told && !renewed {
			m.lose(l)
		}
	}
}

// clearOf returns d, or a bit more: so much that after it nothing that the model decides hangs on less than margin.
func (m *propModel) clearOf(margin, d time.Duration, both bool) time.Duration {
	near := func(a, b time.Duration) bool { return (a - b).Abs() < margin }
	for again := true; again; {
		again = false
		for _, e := range m.keys {
			again = again || e.expiry > 0 && (near(e.expiry, m.redis+d) || near(e.expiry-e.hold, m.redis+d))
		}
		for _, l := range m.leases {
			again = again || both && l.cause == nil && (near(l.until, m.local+d) || near(l.lostAt+l.ttl/3, m.local+d))
		}
		if again {
			d += margin
		}
	}
	return d
}

// mayExpire returns when the key expires, by Redis's clock. With renewals that is known to a third of the lease, for
// the contract does not say at which instants they come.
func (m *propModel) mayExpire(e *propEntry) (earliest, latest time.Duration) {
	if e.kind != propClaim || !e.owner.renewing {
		return e.expiry, e.expiry
	}
	renewed := m.redis + e.hold + e.owner.ttl
	return max(e.expiry, renewed-e.owner.ttl/3), max(e.expiry, renewed)
}

// mayEnd returns how long the lease is valid, by the local clock.
func (m *propModel) mayEnd(l *propLease) (earliest, latest time.Duration) {
	if !l.renewing || !m.stands(l) {
		return l.until, l.until
	}
	renewed := m.local + propValidity(l.ttl)
	return max(l.until, renewed-l.ttl/3), max(l.until, renewed)
}

// learn takes over what was seen where the model knows no more than bounds.
func (m *propModel) learn(l *propLease, until time.Duration, cause error) {
	if until > l.until {
		l.until, l.expiry = until, until+l.ttl-propValidity(l.ttl)
	}
	if l.cause == nil && l.renewing && !m.stands(l) {
		if errors.Is(cause, lock.ErrLost) {
			m.lose(l)
		} else if !l.missing {
			l.missing, l.lostAt = true, m.local
		}
	}
}
