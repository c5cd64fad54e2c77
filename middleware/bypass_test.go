package middleware_test

import (
	"context"
	"errors"
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
				s.want(a, http.StatusConflict, middleware.NotReplayable)
				if a.problem() != "response-not-stored" {
					t.Errorf("problem %q, want response-not-stored", a.problem())
				}
				s.wantRuns(1)
			})
		})
	}
}

// openWriter is the writer that the adapter of a framework gives to the middleware. It knows whether the handlers have
// left the response to an outer middleware.
type openWriter struct {
	http.ResponseWriter
	why error
}

func (w *openWriter) LeftOpen() error { return w.why }

// What an outer middleware will answer cannot be stored, and is not an empty 200. Only the handler can know that nothing
// has happened, or that the effect is there.
func TestResponseLeftToAnOuterMiddleware(t *testing.T) {
	why := errors.New("rendered outside")
	nothing := func(*middleware.Execution) {}
	discard := func(e *middleware.Execution) { _ = e.Discard() }
	for name, test := range map[string]struct {
		opt     middleware.Option
		decide  func(*middleware.Execution)
		outcome middleware.Outcome
		retry   string // its problem, empty if it runs
	}{
		"unknown":            {middleware.WithMaxDuration(time.Minute), nothing, middleware.Unknown, "in-flight"},
		"too late":           {middleware.WithMaxDuration(time.Nanosecond), nothing, middleware.Unknown, "in-flight"},
		"kept":               {middleware.WithMaxDuration(time.Minute), (*middleware.Execution).Keep, middleware.NotStored, "response-not-stored"},
		"kept, at most once": {middleware.WithAtMostOnce(), (*middleware.Execution).Keep, middleware.NotStored, "response-not-stored"},
		"discarded":          {middleware.WithAtMostOnce(), discard, middleware.Freed, ""},
		"unknown, in shadow": {middleware.WithShadow(), nothing, middleware.Unknown, ""},
		"kept, in shadow":    {middleware.WithShadow(), (*middleware.Execution).Keep, middleware.NotStored, ""},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				s := serve(t, b, func(_ http.ResponseWriter, r *http.Request) {
					r.Context().Value(frameworkKey{}).(*openWriter).why = why
					test.decide(middleware.FromContext(r.Context()))
				}, test.opt)
				s.outer = func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						open := &openWriter{ResponseWriter: w}
						next.ServeHTTP(open, r.WithContext(context.WithValue(r.Context(), frameworkKey{}, open)))
						if open.why != nil {
							w.WriteHeader(http.StatusTeapot)
						}
					})
				}
				e := s.want(s.send(), http.StatusTeapot, test.outcome)
				if e.Status != 0 || errors.Is(e.Err, why) == (test.outcome == middleware.Freed) {
					t.Errorf("the Event has the status %d and the error %v", e.Status, e.Err)
				}
				a := s.send()
				if <-s.events; a.problem() != test.retry || test.retry == "" && a.status != http.StatusTeapot {
					t.Errorf("a retry gets %d %q, want the problem %q", a.status, a.problem(), test.retry)
				}
			})
		})
	}
}
