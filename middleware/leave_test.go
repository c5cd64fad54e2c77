package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// A run whose outcome is unknown has its key for the rest of the lease, and not for the time that a run may take.
func TestKeyOfAnUnknownOutcomeIsNotRenewed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){
		"panic":  func() { panic(http.ErrAbortHandler) },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := new(canned)
				_, send := protect(t, store, func(http.ResponseWriter, *http.Request) {
					time.Sleep(limit / 2)
					end()
				}, middleware.WithMaxDuration(limit))
				over := make(chan struct{})
				go func() {
					defer close(over)
					defer func() { _ = recover() }()
					send(&discarded{header: http.Header{}}, 10)
				}()
				<-over
				before := store.renewed.Load()
				time.Sleep(2 * limit)
				if after := store.renewed.Load(); before < 5 || after != before {
					t.Errorf("%d renewals while the handler ran, %d when it had ended", before, after-before)
				}
			})
		})
	}
}

// The limit is on the handler: while its response is being stored, the key is still renewed.
func TestKeyIsRenewedWhileTheResponseIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &canned{claim: []byte(absent)}
		var before, after int64
		store.settling = func() {
			before = store.renewed.Load()
			time.Sleep(limit)
			after = store.renewed.Load()
		}
		o := store.options()
		o.ReadTimeout = 2 * limit
		locker := newLocker(t, redistest.NewDirect(t, o).Client, lock.WithOpTimeout(2*limit))
		protected := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), middleware.WithMaxDuration(limit))(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(limit - time.Millisecond)
				w.WriteHeader(http.StatusCreated)
			}))
		w := &discarded{header: http.Header{}}
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/mine", nil)
		r.Header.Set("Idempotency-Key", "mine")
		protected.ServeHTTP(w, r)
		if w.status != http.StatusCreated || after-before < 10 {
			t.Errorf("status %d; %d renewals while the response was stored for %v", w.status, after-before, limit)
		}
	})
}
