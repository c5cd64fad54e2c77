package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Redis does not answer for longer than a lease, and comes back: the response that this process still has is stored then,
// for what is left of its retention. Until then a duplicate gets 503, and no second run.
//
// fault: Redis silent or full for longer than a lease, and back, with WithAtMostOnce
func TestResponseIsStoredWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	const (
		lease     = 3 * time.Second
		retention = time.Hour
	)
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t), lock.WithTTL(lease))
		s := serveOn(t, locker, payOnce(), middleware.WithAtMostOnce(), middleware.WithRetention(retention))
		cut := p.CutBefore(settles)
		begun := time.Now()
		if e := s.want(s.send(), http.StatusCreated, middleware.NotStored); e.Err == nil || !e.Pending {
			t.Errorf("%+v, want an Err and Pending", e)
		}
		for time.Since(begun) < 3*lease { // a reply takes none of the test's time: each try is an event
			cut.Wait(t)
			if a := s.send(); a.status != http.StatusServiceUnavailable {
				t.Fatalf("a duplicate: %d %s, want 503", a.status, a.body)
			}
			<-s.events
		}
		cut.Lift()
		for deadline := time.Now().Add(20 * time.Second); locker.Stats().SettledLate == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the response is not stored: %+v", locker.Stats())
			}
		}
		e := s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.wantRuns(1)
		left, err := b.Client(t).PTTL(t.Context(), e.Key).Result()
		if err != nil || left > retention-2*lease || left < retention-time.Minute {
			t.Errorf("it stays for %v, %v, want what is left of %v", left, err, retention)
		}
	})
}

// Redis refuses the writes of a process for longer than a lease, after its response was sent. A retry that another instance
// serves before the response is stored runs again by default: this is a limit of the mode. With WithAtMostOnce it does
// not, and gets the response once that is stored.
//
// fault: Redis away for longer than a lease, response pending, default mode
func TestRetryBeforeTheResponseIsStored(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	for name, test := range map[string]struct {
		opts      []middleware.Option
		status    int
		outcome   middleware.Outcome
		otherRuns int64
	}{
		"default":        {nil, http.StatusCreated, middleware.Executed, 1},
		"WithAtMostOnce": {[]middleware.Option{middleware.WithAtMostOnce()}, http.StatusConflict, middleware.OutcomeUnknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				p := redistest.NewProxy(t, b.Addr())
				first := newLocker(t, p.Client(t), lock.WithTTL(lease), lock.WithoutRenewal()) // its renewals are refused too
				s := serveOn(t, first, payOnce(), test.opts...)
				other := serveOn(t, newLocker(t, b.Client(t), lock.WithTTL(lease)), payOnce(), test.opts...)
				cut := p.CutBefore(settles)
				if e := s.want(s.send(), http.StatusCreated, middleware.NotStored); !e.Pending {
					t.Errorf("%+v, want Pending", e)
				}
				b.Elapse(t, lease)
				other.want(other.send(), test.status, test.outcome)
				cut.Lift()
				for deadline := time.Now().Add(20 * time.Second); first.Stats().Pending > 0; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%+v", first.Stats())
					}
				}
				s.want(s.send(), http.StatusCreated, middleware.Replayed)
				other.want(other.send(), http.StatusCreated, middleware.Replayed)
				s.wantRuns(1)
				other.wantRuns(test.otherRuns)
			})
		})
	}
}
