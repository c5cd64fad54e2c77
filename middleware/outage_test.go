package middleware_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Redis goes while handlers run, for longer than a lease, and comes back empty. Retries that reach the process which has
// the responses get 503 before, and the response afterwards. None runs again, and another request with such a key gets 422.
//
// fault: Redis away for longer than a lease, response pending, default mode
func TestRetriesToTheProcessWithThePendingResponse(t *testing.T) {
	t.Parallel()
	const n, lease = 50, 2 * time.Second
	for name, opts := range map[string][]middleware.Option{
		"default": nil, "at most once": {middleware.WithAtMostOnce()}, "fail open": {middleware.WithFailOpen()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			locker := newLocker(t, server.Client(t, redistest.OneTry), lock.WithTTL(lease), lock.WithOpTimeout(lease/2))
			g, pay := newGate(), payOnce()
			s := serveOn(t, locker, func(w http.ResponseWriter, r *http.Request) {
				g.entered <- struct{}{}
				<-g.open
				pay(w, r)
			}, opts...)
			var first []<-chan answer
			for i := range n {
				first = append(first, s.inBackground(g, key(fmt.Sprint(i))))
			}
			server.Kill(t)
			gone := time.Now()
			close(g.open)
			want := make([]string, n)
			for i, done := range first {
				a := <-done
				want[i] = a.body
				s.want(a, http.StatusCreated, middleware.NotStored)
			}
			if got := locker.Stats().Pending; got != n {
				t.Fatalf("%d responses are pending, want %d", got, n)
			}
			for i := 0; i < n || time.Since(gone) < 2*lease; i++ {
				s.want(s.send(key(fmt.Sprint(i%n))), http.StatusServiceUnavailable, middleware.StoreUnavailable)
			}
			server.Restart(t)
			send := func(edits ...edit) answer {
				a := s.send(edits...)
				for ; a.status == http.StatusServiceUnavailable; a = s.send(edits...) {
					s.event() // go-redis has not connected yet, or the machine is busy
				}
				return a
			}
			s.want(send(key("0"), body("application/json", `{"amount":7}`)), http.StatusUnprocessableEntity, middleware.Reused)
			for i := range n {
				a := send(key(fmt.Sprint(i)))
				s.want(a, http.StatusCreated, middleware.Replayed)
				if a.body != want[i] {
					t.Errorf("retry %d: %q, want %q", i, a.body, want[i])
				}
			}
			s.wantRuns(n)
		})
	}
}
