package middleware_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// frameworkWriter is a ResponseWriter of a framework that knows whether it was written to, as that of gin does.
type frameworkWriter struct {
	http.ResponseWriter
	written bool
}

func (w *frameworkWriter) WriteHeader(status int) {
	w.written = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *frameworkWriter) Write(p []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(p)
}

func (w *frameworkWriter) Written() bool               { return w.written }
func (w *frameworkWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type frameworkKey struct{}

// framework puts such a writer around the middleware and into the context, where the handler finds it. With written, the
// writer was written to before.
func framework(written bool, inner func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			own := &frameworkWriter{w, written}
			inner(next).ServeHTTP(own, r.WithContext(context.WithValue(r.Context(), frameworkKey{}, own)))
		})
	}
}

func bare(h http.Handler) http.Handler { return h }

// around answers on the framework's own writer.
func around(r *http.Request) {
	w := r.Context().Value(frameworkKey{}).(http.ResponseWriter)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "paid")
}

// A handler that answers on another writer has answered, and its response is not known. No empty 200 is stored, the key is
// not freed, and no second response is sent.
func TestHandlerAnswersOnAnotherWriter(t *testing.T) {
	for name, test := range map[string]struct {
		h     http.HandlerFunc
		inner func(http.Handler) http.Handler
		opts  []middleware.Option
	}{
		"silent otherwise": {h: func(_ http.ResponseWriter, r *http.Request) { around(r) }, inner: bare},
		"wrapped":          {h: func(_ http.ResponseWriter, r *http.Request) { around(r) }, inner: quietLogger},
		"at most once": {
			h: func(_ http.ResponseWriter, r *http.Request) { around(r) }, inner: bare,
			opts: []middleware.Option{middleware.WithAtMostOnce()},
		},
		"on both": {
			h: func(w http.ResponseWriter, r *http.Request) {
				around(r)
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "not paid")
			},
			inner: bare,
		},
		"discarded": {
			h: func(_ http.ResponseWriter, r *http.Request) {
				around(r)
				_ = middleware.FromContext(r.Context()).Discard()
			},
			inner: bare,
		},
		"too late": {
			h: func(_ http.ResponseWriter, r *http.Request) {
				around(r)
				<-r.Context().Done()
			},
			inner: bare, opts: []middleware.Option{middleware.WithMaxDuration(time.Millisecond)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				s := serve(t, b, test.h, test.opts...)
				s.outer = framework(false, test.inner)
				a := s.send()
				e := s.want(a, http.StatusCreated, middleware.NotStored)
				if a.body != "paid" {
					t.Errorf("body %q, want what the handler has written, once", a.body)
				}
				if e.Err == nil || !strings.Contains(e.Err.Error(), "ResponseWriter") || e.Status != 0 {
					t.Errorf("%+v, want an error that names the mistake, and no status", e)
				}
				a = s.send()
				s.want(a, http.StatusConflict, middleware.NotStored)
				if a.problem() != "response-not-stored" {
					t.Errorf("problem %q, want response-not-stored", a.problem())
				}
				s.wantRuns(1)
			})
		})
	}
}

// After a panic, too, the key of what was answered is not freed.
func TestHandlerPanicsAfterItsAnswerOnAnotherWriter(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(_ http.ResponseWriter, r *http.Request) {
			around(r)
			panic(http.ErrAbortHandler)
		})
		s.outer = framework(false, bare)
		_, _ = s.try(s.request(noRetry))
		s.wantEvents(middleware.Unknown)
		b.Elapse(t, leaseTTL)
		a := s.send()
		s.want(a, http.StatusConflict, middleware.Unknown)
		wantUnknownNotStored(t, a)
		s.wantRuns(1)
	})
}

// A handler that uses its own writer has not bypassed anything, whatever the outer writer reports.
func TestFrameworkWriter(t *testing.T) {
	for name, test := range map[string]struct {
		written bool
		h       http.HandlerFunc
		status  int
	}{
		"held back":      {false, payOnce(), http.StatusCreated},
		"silent":         {false, func(http.ResponseWriter, *http.Request) {}, http.StatusOK},
		"written before": {true, payOnce(), http.StatusCreated},
		"flushed": {false, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_ = http.NewResponseController(w).Flush()
		}, http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				s := serve(t, b, test.h)
				s.outer = framework(test.written, bare)
				s.want(s.send(), test.status, middleware.Executed)
				s.want(s.send(), test.status, middleware.Replayed)
				s.wantRuns(1)
			})
		})
	}
}

// The writers of negroni and martini say Written after a 103 too. A handler that sends one has not bypassed anything.
func TestEarlyHintsAreNoBypass(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "paid")
		})
		s.outer = framework(false, bare)
		a := s.send()
		e := s.want(a, http.StatusCreated, middleware.Executed)
		if a.body != "paid" {
			t.Errorf("the client got %d %q; event error %v", a.status, a.body, e.Err)
		}
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
	})
}
