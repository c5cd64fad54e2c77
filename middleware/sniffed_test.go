package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// encodedFromTheStart is an outer writer that sets its Content-Encoding before the handler runs, and removes it from an
// error, as gin's gzip does. Its encoding leaves the body as it is.
type encodedFromTheStart struct{ http.ResponseWriter }

func (w encodedFromTheStart) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w encodedFromTheStart) WriteHeader(status int) {
	if status >= 400 {
		w.Header().Del("Content-Encoding")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Whether net/http detects a Content-Type, and what an outer writer does without one, is as without this middleware, for the
// first response and for each replay. One thing differs: a Flush after 1 to 511 bytes fixes the type of the replay, and with it
// in the header chi's Compress compresses.
//
// fault: the handler sets no Content-Type below an outer writer -> the response is as without the middleware, and so are replays
func TestContentTypeBelowOuterWriters(t *testing.T) {
	t.Parallel()
	text := "<html>" + strings.Repeat("payment ", 500)
	outers := map[string]func(http.Handler) http.Handler{
		"none":           func(next http.Handler) http.Handler { return next },
		"chi's Compress": chimiddleware.Compress(5),
		"TimeoutHandler": func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Minute, "") },
		"encoded from the start": func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "x-plain")
				next.ServeHTTP(encodedFromTheStart{w}, r)
			})
		},
	}
	handlers := map[string]http.HandlerFunc{
		"200": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) },
		"402": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusPaymentRequired) },
		"204": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"its own encoding": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, text)
		},
		"none wanted": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, text)
		},
		"a Transfer-Encoding": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Transfer-Encoding", "identity")
			_, _ = io.WriteString(w, text)
		},
		"a Flush first":           flushAfter(text, 0),
		"a Flush after 1 byte":    flushAfter(text, 1),
		"a Flush after 511 bytes": flushAfter(text, 511),
		"a Flush after 512 bytes": flushAfter(text, 512),
	}
	flushedEarly := map[string]bool{"a Flush after 1 byte": true, "a Flush after 511 bytes": true}
	for outerName, outer := range outers {
		for handlerName, h := range handlers {
			t.Run(outerName+"/"+handlerName, func(t *testing.T) {
				t.Parallel()
				for _, m := range []string{http.MethodPost, http.MethodHead} {
					s := serve(t, redistest.Mini(t), h, middleware.WithMethods(m))
					s.outer = outer
					ask := func(accepted string, edit edit) string {
						a := s.send(method(m), header("Accept-Encoding", accepted), edit)
						return fmt.Sprintf("%s %s: %d, type %q, encoding %q", m, accepted, a.status, a.header["Content-Type"], a.header["Content-Encoding"])
					}
					encodings := []string{"gzip", "identity"}
					for _, first := range encodings {
						for n, accepted := range append([]string{first}, encodings...) {
							want, got := ask(accepted, noKey), ask(accepted, key(first))
							if bare, seen := s.event(), s.event(); bare.Outcome != middleware.Unprotected || (n > 0) != (seen.Outcome == middleware.Replayed) {
								t.Errorf("%s, then %s", bare.Outcome, seen.Outcome)
							}
							if outerName == "chi's Compress" && accepted == "gzip" && flushedEarly[handlerName] {
								want = strings.Replace(want, "encoding []", `encoding ["gzip"]`, 1)
							}
							if got != want {
								t.Errorf("got %s; without the middleware %s", got, want)
							}
						}
					}
				}
			})
		}
	}
}

func flushAfter(text string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text[:n])
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, text[n:])
	}
}
