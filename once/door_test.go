package once_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

// encodedKey is the key of ann's message 1 in the Locker.
const encodedKey = "\x00once 6:charge3:ann1:1"

// An HTTP request never gets a function's value, nor a function a response, even if a key function makes the key of a
// function.
func TestDoorsDoNotReadEachOther(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		handled := 0
		h := middleware.Idempotency(d.locker, func(*http.Request) (string, error) { return encodedKey, nil })(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled++ }))
		post := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			return w
		}
		wantUnreadable := func() {
			t.Helper()
			if w := post(); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "record-unreadable") {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		d.do(func(context.Context) (receipt, error) {
			wantUnreadable() // the claim's note
			return receipt{Number: 1}, nil
		})
		d.event("executed")
		wantUnreadable()
		if handled > 0 {
			t.Error("the handler ran")
		}

		b.FlushAll(t)
		post()
		d.wantRefused(d.do(d.charge), once.ErrUnreadable, "unreadable")
		if d.wantRuns(1); handled != 1 {
			t.Errorf("the handler ran %d times", handled)
		}
	})
}

// A function inside of a protected handler has a run of its own, and so has the handler.
func TestInsideOfAHandler(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		h := middleware.Idempotency(d.locker, func(*http.Request) (string, error) { return "k1", nil })(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if once.FromContext(r.Context()) != nil {
					t.Error("a handler has an Execution of a function")
				}
				d.doIn(r.Context(), func(ctx context.Context) (receipt, error) {
					outer, inner := middleware.FromContext(ctx), once.FromContext(ctx)
					if outer == nil || inner == nil || outer.Key() == inner.Key() {
						t.Errorf("the keys are %q and %q", outer.Key(), inner.Key())
					}
					return receipt{Number: 1}, nil
				})
				w.WriteHeader(http.StatusTeapot)
			}))
		for range 2 {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil)); w.Code != http.StatusTeapot {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		d.event("executed")
		d.want(d.do(d.charge), 1, true, "replayed")
		d.wantRuns(1)
	})
}
