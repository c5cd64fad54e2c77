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
