package middleware_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// What is stored is told in internal/record: who can read it, and what is authenticated. The tests in this file are of the
// options.

// recordAt is where the middleware's part of a stored value begins, behind what the lock has put there.
const recordAt = 28

// wantUnreadable sends ann's payment and checks that it is refused, and that the event says why.
func (s *site) wantUnreadable(why string, edits ...edit) {
	s.t.Helper()
	a := s.send(edits...)
	e := s.wantRefused(a, http.StatusInternalServerError, middleware.Unreadable, "record-unreadable")
	if e.Err == nil || !strings.Contains(e.Err.Error(), why) {
		s.t.Errorf("error %v, want one with %q", e.Err, why)
	}
}

// Every form of storage gives the same answers, and what is encrypted is not visible in Redis.
func TestStoredForms(t *testing.T) {
	for name, opts := range forms() {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				s := serve(t, b, behind(t, g, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Trailer", "X-Checksum")
					w.Header()["X-Many"] = []string{"a", "b"}
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, "payment "+strings.Repeat("\x00\xff", 2000))
					w.Header().Set("X-Checksum", "abc")
				}), append(opts, middleware.WithFingerprint("body", func(_ *http.Request, body []byte) []byte { return body }))...)
				other := body("text/plain", "other")
				done := s.inBackground(g)
				k := b.Keys(t)[0]
				claim := rawOf(t, b, k)
				s.want(s.send(), http.StatusConflict, middleware.InFlight)
				s.want(s.send(other), http.StatusUnprocessableEntity, middleware.Reused)
				close(g.open)
				first := <-done
				s.want(first, http.StatusCreated, middleware.Executed)
				again := s.send()
				s.want(again, http.StatusCreated, middleware.Replayed)
				if again.body != first.body || len(again.header["X-Many"]) != 2 || again.trailer.Get("X-Checksum") != "abc" {
					t.Errorf("got %+v, want %+v", again, first)
				}
				s.want(s.send(other), http.StatusUnprocessableEntity, middleware.Reused)
				s.wantRuns(1)

				record, encrypted := rawOf(t, b, k), strings.Contains(name, "encrypted")
				fingerprint := sha256.Sum256([]byte(payment))
				for _, raw := range [][]byte{claim, record} {
					if visible := bytes.Contains(raw, fingerprint[:]); visible == encrypted {
						t.Errorf("the fingerprint is visible: %v", visible)
					}
				}
				if visible := bytes.Contains(record, []byte("payment")); visible != (name == "plain") {
					t.Errorf("the response is visible: %v", visible)
				}
				if isShort := len(record) < 2000; isShort != strings.Contains(name, "compressed") {
					t.Errorf("it has %d bytes", len(record))
				}
			})
		})
	}
}

// Instances with other keys and options understand each other as WithEncryption, WithPlaintextReads and WithCompression say.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	encrypted := middleware.WithEncryption
	set := func(opts ...middleware.Option) []middleware.Option { return append(opts, middleware.WithFailOpen()) }
	for name, test := range map[string]struct {
		writer, reader []middleware.Option
		why            string // it cannot be read
	}{
		"the second key":        {set(encrypted(master(1))), set(encrypted(master(2), master(1))), ""},
		"the new one last":      {set(encrypted(master(2), master(1))), set(encrypted(master(1), master(2))), ""},
		"a key that is dropped": {set(encrypted(master(1))), set(encrypted(master(2))), "no key"},
		"a key that is too new": {set(encrypted(master(3), master(2))), set(encrypted(master(2))), "no key"},
		"not encrypted":         {set(), set(encrypted(master(1))), "not encrypted"},
		"plaintext is read":     {set(), set(encrypted(master(1)), middleware.WithPlaintextReads()), ""},
		"encrypted":             {set(encrypted(master(1))), set(), "encrypted"},
		"below the minimum":     {set(middleware.WithCompression(1 << 20)), set(), ""},
	} {
		b := redistest.Mini(t)
		g := newGate()
		writer, reader := serve(t, b, behind(t, g, payOnce()), test.writer...), serve(t, b, payOnce(), test.reader...)
		done := writer.inBackground(g)
		if test.why != "" {
			reader.wantUnreadable(test.why)
			close(g.open)
			<-done
			reader.wantUnreadable(test.why)
		} else {
			reader.want(reader.send(), http.StatusConflict, middleware.InFlight)
			close(g.open)
			<-done
			reader.want(reader.send(), http.StatusCreated, middleware.Replayed)
		}
		reader.wantRuns(0)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}
