package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// openWriter is the writer that the adapter of a framework gives to the middleware. It knows whether it was written to, as
// that of gin does, and whether the handlers have left the response to an outer middleware.
type openWriter struct {
	http.ResponseWriter
	written bool
	why     error
}

func (w *openWriter) LeftOpen() error { return w.why }
func (w *openWriter) Written() bool   { return w.written }

func (w *openWriter) WriteHeader(status int) {
	w.written = true
	w.ResponseWriter.WriteHeader(status)
}

type openKey struct{}

// A handler that answers on another writer has answered, and its response is not known. What an outer middleware will answer
// cannot be stored, and is not an empty 200. Only the handler can know that nothing has happened, or that the effect is there.
func TestResponseOfAnother(t *testing.T) {
	t.Parallel()
	why := errors.New("rendered outside")
	around := func(w *openWriter, _ *middleware.Execution) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "paid")
	}
	leaves := func(w *openWriter, _ *middleware.Execution) { w.why = why }
	for name, test := range map[string]struct {
		opts    []middleware.Option
		handle  func(*openWriter, *middleware.Execution)
		outcome middleware.Outcome
		reason  string // in the Event's error
		retry   string // its problem, empty if it runs
	}{
		"around":               {nil, around, middleware.NotStored, "ResponseWriter", "response-not-stored"},
		"around, at most once": {[]middleware.Option{middleware.WithAtMostOnce()}, around, middleware.NotStored, "ResponseWriter", "response-not-stored"},
		"around, discarded": {nil, func(w *openWriter, e *middleware.Execution) { around(w, e); _ = e.Discard() },
			middleware.NotStored, "ResponseWriter", "response-not-stored"},
		"left":       {nil, leaves, middleware.Unknown, why.Error(), "in-flight"},
		"left, kept": {nil, func(w *openWriter, e *middleware.Execution) { leaves(w, e); e.Keep() }, middleware.NotStored, why.Error(), "response-not-stored"},
		"left, discarded": {[]middleware.Option{middleware.WithAtMostOnce()}, func(w *openWriter, e *middleware.Execution) { leaves(w, e); _ = e.Discard() },
			middleware.Freed, "", ""},
		"left, in shadow": {[]middleware.Option{middleware.WithShadow()}, leaves, middleware.Unknown, why.Error(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, redistest.Mini(t), func(_ http.ResponseWriter, r *http.Request) {
				test.handle(r.Context().Value(openKey{}).(*openWriter), middleware.FromContext(r.Context()))
			}, test.opts...)
			s.outer = func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					open := &openWriter{ResponseWriter: w}
					next.ServeHTTP(open, r.WithContext(context.WithValue(r.Context(), openKey{}, open)))
					if open.why != nil {
						w.WriteHeader(http.StatusTeapot)
						_, _ = io.WriteString(w, "paid")
					}
				})
			}
			a := s.send()
			e := s.want(a, http.StatusTeapot, test.outcome)
			if err := e.Err; a.body != "paid" || e.Status != 0 || test.reason == "" && err != nil || test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)) {
				t.Errorf("%q, the Event has the status %d and the error %v", a.body, e.Status, e.Err)
			}
			a = s.send()
			if s.event(); a.problem() != test.retry || test.retry == "" && a.status != http.StatusTeapot {
				t.Errorf("a retry gets %d %q, want the problem %q", a.status, a.problem(), test.retry)
			}
		})
	}
}
