package middleware_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// quietLogger is chi's Logger, which wraps the ResponseWriter, without its output.
var quietLogger = chimiddleware.RequestLogger(&chimiddleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0)})

// A client that sends a long body sees why it was refused, although the body is not read: net/http must not break the
// connection while the client sends, even if the connection ends with this request.
//
// conformance: 14
func TestRefusalReachesTheClient(t *testing.T) {
	t.Parallel()
	long, times := strings.Repeat("x", 50e6), redistest.Rounds(12, 60)
	framings := []edit{
		func(*http.Request) {},
		func(r *http.Request) { r.Close = true },
		header("Expect", "100-continue"),
		func(r *http.Request) { r.ContentLength = -1 },
	}
	failing := func(*http.Request) (string, error) { return "", errors.New("the directory is down") }
	standard := keyfunc.Standard(keyfunc.BasicUser())
	for name, test := range map[string]struct {
		key     keyfunc.Func
		edit    edit
		status  int
		outcome middleware.Outcome
	}{
		"key-missing":    {standard, noKey, http.StatusBadRequest, middleware.MissingKey},
		"key-invalid":    {standard, key(`"`), http.StatusBadRequest, middleware.InvalidKey},
		"body-too-large": {standard, key("k1"), http.StatusRequestEntityTooLarge, middleware.TooLarge},
		"key-failed":     {failing, noKey, http.StatusInternalServerError, middleware.KeyFailed},
	} {
		for around, outer := range map[string]func(http.Handler) http.Handler{
			"bare":   func(h http.Handler) http.Handler { return h },
			"logged": quietLogger,
		} {
			t.Run(name+", "+around, func(t *testing.T) {
				s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), test.key, payOnce(), middleware.WithRequired())
				s.outer = outer
				for size, requests := range map[int]int{1_500_000: times, 10_000_000: times, 50_000_000: 4} {
					for i := range requests {
						a, err := s.try(s.request(test.edit, body("text/plain", long[:size]), framings[i%len(framings)]))
						if s.want(a, test.status, test.outcome); err != nil || a.problem() != name {
							t.Errorf("request %d of %d bytes: %v, problem %q", i, size, err, a.problem())
						}
					}
				}
				s.wantRuns(0)
			})
		}
	}
}

// What net/http reads by itself costs no connection. A body in chunks may be longer.
func TestRefusalOfAShortBodyKeepsTheConnection(t *testing.T) {
	t.Parallel()
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, test := range []struct {
		size    int
		framing edit
		keeps   bool
	}{{1, nil, true}, {100, nil, true}, {256<<10 - 1, nil, true}, {100, chunked, false}} {
		s := serve(t, redistest.Mini(t), payOnce(), middleware.WithRequired())
		s.outer = quietLogger
		for i := range 3 {
			reused := false
			trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
			r := s.request(noKey, body("text/plain", strings.Repeat("x", test.size)))
			if test.framing != nil {
				test.framing(r)
			}
			a, err := s.try(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
			if s.want(a, http.StatusBadRequest, middleware.MissingKey); err != nil || reused != (test.keeps && i > 0) {
				t.Errorf("%d bytes, request %d: on a used connection: %t, %v", test.size, i, reused, err)
			}
		}
	}
}
