package run

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// granter is a Redis that grants every claim. What is done to a claim later finds it, unless it is lost.
type granter struct {
	loses bool
	pause time.Duration // before the reply to what is done to a claim

	mu sync.Mutex
	at []time.Time // when something was done to a claim; guarded by mu
}

// last returns when something was done to a claim for the last time.
func (g *granter) last() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.at) == 0 {
		return time.Time{}
	}
	return g.at[len(g.at)-1]
}

// granted is a connection to a granter.
type granted struct {
	net.Conn // nil
	by       *granter
	isScript bool
	unread   bytes.Buffer
}

func (c *granted) Write(p []byte) (int, error) {
	head := bytes.Index(p, []byte("OGc\x01"))
	if c.isScript = bytes.Contains(p, []byte("evalsha")); c.isScript {
		c.by.mu.Lock()
		c.by.at = append(c.by.at, time.Now())
		c.by.mu.Unlock()
	}
	if c.isScript && !c.by.loses {
		c.unread.WriteString("$20\r\n")
		c.unread.Write(p[head : head+20])
		c.unread.WriteString("\r\n")
	} else {
		c.unread.WriteString("$-1\r\n")
	}
	return len(p), nil
}

func (c *granted) Read(p []byte) (int, error) {
	if c.isScript {
		time.Sleep(c.by.pause)
	}
	return c.unread.Read(p)
}

func (*granted) Close() error                     { return nil }
func (*granted) SetDeadline(time.Time) error      { return nil }
func (*granted) SetReadDeadline(time.Time) error  { return nil }
func (*granted) SetWriteDeadline(time.Time) error { return nil }

// newLocker returns a Locker on g, for a test in a bubble.
func newLocker(t *testing.T, g *granter, opts ...lock.Option) *lock.Locker {
	t.Helper()
	client := redistest.NewDirect(t, &redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return &granted{by: g}, nil },
	}).Client
	return lock.New(client, "test", append([]lock.Option{lock.WithTTL(10 * time.Second)}, opts...)...)
}

// ended is a product that is stored if it has a body.
type ended struct{ body string }

func (e ended) Payload() (head, body []byte, ok bool) { return nil, []byte(e.body), true }
func (ended) Tombstone(bool) []byte                   { return nil }
func (e ended) Stores(bool) bool                      { return e.body != "" }
func (ended) NeedsNoTx() bool                         { return false }
func (ended) Abort()                                  {}
func (ended) Sent() bool                              { return false }
func (ended) String() string                          { return "ended" }

// transacted is a product that transactions can commit.
type transacted struct{ ended }

func (transacted) BeginTx() error                     { return nil }
func (transacted) Seal(func(head, body []byte)) error { return nil }
func (transacted) Changed() bool                      { return false }
func (transacted) Committed()                         {}
func (transacted) Rewind()                            {}
func (transacted) Freeze()                            {}

// endingJournal is a journal whose End does what a test says.
type endingJournal struct {
	journal.Journal
	end func(journal.Run) (journal.Entry, error)
}

func (endingJournal) Namespace() string { return "test" }
func (endingJournal) IsIntent() bool    { return false }
func (endingJournal) Begin(context.Context, journal.Run) (journal.Entry, error) {
	return journal.Entry{}, nil
}

func (e endingJournal) End(_ context.Context, r journal.Run, _ []byte, _ time.Duration) (journal.Entry, error) {
	return e.end(r)
}

// A lease is renewed while its run goes on, up to the limit, and at its end until it is known what becomes of the key.
func TestRenewals(t *testing.T) {
	t.Parallel()
	fails := func(journal.Run) (journal.Entry, error) { return journal.Entry{}, errors.New("no answer") }
	whole := func(r *Run) {
		r.Start(ended{"b"})
		r.CutOff()
		r.Conclude(Ending{How: Whole})
	}
	const tick = 10 * time.Second // from the last renewal to the end of a lease
	for name, test := range map[string]struct {
		end   func(journal.Run) (journal.Entry, error) // of the journal; nil: there is none
		do    func(r *Run)
		until time.Duration // the last renewal is before
	}{
		"never started":          {nil, func(*Run) {}, time.Minute},
		"never started, journal": {fails, func(*Run) {}, time.Minute},
		"never ends": {nil, func(r *Run) {
			time.Sleep(30 * time.Second)
			r.Start(ended{})
		}, 90 * time.Second},
		"left": {nil, func(r *Run) {
			r.Start(ended{})
			time.Sleep(30 * time.Second)
			r.CutOff()
			r.Conclude(Ending{How: Interrupted})
		}, 30 * time.Second},
		"left, journal": {fails, func(r *Run) {
			r.Start(ended{})
			time.Sleep(30 * time.Second)
			r.CutOff()
			r.Conclude(Ending{How: Interrupted})
		}, 30 * time.Second},
		"undecided": {fails, func(r *Run) {
			_ = journal.Transact(r.Start(transacted{}), func(func() (journal.Commit, error)) error { return nil }, nil)
			time.Sleep(30 * time.Second)
			r.CutOff()
			r.Conclude(Ending{How: Whole})
		}, 30 * time.Second},
		"journal panics": {func(journal.Run) (journal.Entry, error) { panic("end") }, func(r *Run) {
			defer func() { _ = recover() }()
			time.Sleep(30 * time.Second)
			whole(r)
		}, 30 * time.Second},
		"journal does not answer": {fails, whole, time.Hour},
		"journal answers late": {func(journal.Run) (journal.Entry, error) {
			if time.Now().Before(time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC)) {
				return journal.Entry{}, errors.New("no answer")
			}
			return journal.Entry{State: journal.Running, Token: "another"}, nil
		}, whole, 30 * time.Minute},
		"only a tombstone fits": {fails, func(r *Run) {
			r.Start(ended{strings.Repeat("b", maxPendingRecords)})
			r.CutOff()
			r.Conclude(Ending{How: Whole})
		}, time.Hour},
		"too much is pending": {fails, func(r *Run) {
			time.Sleep(30 * time.Second)
			r.guard.ask.small.Take(maxPendingRecords)
			whole(r)
		}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				redis := &granter{}
				locker := newLocker(t, redis)
				p := Policy{Retention: 2 * time.Hour, MaxDuration: time.Minute}
				if test.end != nil {
					p.Journal = endingJournal{end: test.end}
				}
				begin := time.Now()
				test.do(begun(t, New("run", locker, p), "k"))
				time.Sleep(2 * time.Hour)
				if last := redis.last().Sub(begin); last > test.until || last < test.until-tick {
					t.Errorf("the last renewal was after %v, want %v", last, test.until)
				}
				if err := locker.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// begun begins a run under key, and returns it.
func begun(t *testing.T, g *Guard, key string) *Run {
	t.Helper()
	r := &Run{Request: Request{Key: key, Fingerprints: []record.Fingerprint{{}}}}
	if result := g.Begin(t.Context(), r); result.Kind != Begun {
		t.Fatalf("%+v", result)
	}
	return r
}

// ConcludeWithin does not wait for a slow Redis. It remembers that Redis is slow.
func TestConcludeWithin(t *testing.T) {
	t.Parallel()
	for pause, isLate := range map[time.Duration]bool{0: false, 299 * time.Millisecond: false, 400 * time.Millisecond: true} {
		synctest.Test(t, func(t *testing.T) {
			locker := newLocker(t, &granter{pause: pause})
			g := New("run", locker, Policy{Retention: time.Hour, MaxDuration: time.Minute})
			r := begun(t, g, "k")
			r.Start(ended{"b"})
			r.CutOff()
			start, outcome := time.Now(), OutcomeExecuted
			if isLate {
				outcome = OutcomeNotStored
			}
			const limit = 300 * time.Millisecond
			result := r.ConcludeWithin(limit, Ending{How: Whole})
			if took := time.Since(start); result.Kind != Own || result.Outcome != outcome || took != min(pause, limit) || result.Size == 0 {
				t.Errorf("%+v, after %v", result, took)
			}
			if errors.Is(result.Err, lock.ErrPending) != isLate || g.redis.open() != isLate {
				t.Errorf("%v, paused %v", result.Err, g.redis.open())
			}
			next := begun(t, g, "other") // the policy has no pauses
			next.Start(ended{})
			next.CutOff()
			next.Conclude(Ending{How: Interrupted})
			if err := locker.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
