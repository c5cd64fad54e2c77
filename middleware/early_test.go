package middleware_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// An outer compressor takes a 103 for the response and sets its Content-Encoding. That is not the handler's header: the
// first response and each replay can be decoded.
//
// fault: the handler sends a 1xx below a compressor -> what the compressor adds to the header is not stored
func TestEarlyHintsBelowACompressor(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("payment ", 500)
	for name, h := range map[string]http.HandlerFunc{
		"a 201": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, text)
		},
		"a Flush": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, text[:100])
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, text[100:])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Content-Length", "4000")
				w.Header().Add("Vary", "Accept")
				before := w.Header().Clone()
				w.WriteHeader(http.StatusEarlyHints)
				if !maps.EqualFunc(w.Header(), before, slices.Equal) {
					t.Errorf("after the 103 the handler sees %v, before it %v", w.Header(), before)
				}
				h(w, r)
			})
			s.outer = chimiddleware.Compress(5, "text/plain", "text/csv")
			outcome := middleware.Executed
			for _, accepted := range []string{"gzip", "identity", "gzip"} {
				a := s.send(header("Accept-Encoding", accepted))
				s.want(a, http.StatusCreated, outcome)
				encoding, vary, got := []string(nil), []string{"Accept"}, a.body
				if accepted == "gzip" {
					encoding, vary, got = []string{"gzip"}, []string{"Accept", "Accept-Encoding"}, unzipped(t, a.body)
				}
				if !slices.Equal(a.header["Content-Encoding"], encoding) || !slices.Equal(a.header["Vary"], vary) || got != text {
					t.Errorf("%s, %s: Content-Encoding %q, Vary %q, body %s", outcome, accepted, a.header["Content-Encoding"],
						a.header["Vary"], outline(got))
				}
				outcome = middleware.Replayed
			}
			s.wantRuns(1)
		})
	}
}
