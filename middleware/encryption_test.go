package middleware_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// The middleware's part of a stored value begins behind what the lock has put there, and a encrypted note is the end of
// a claim.
const (
	recordAt = 28
	noteLen  = 1 + 12 + fingerprintLen + 1 + 16
)

// wantUnreadable sends ann's payment and checks that it is refused, and that the event says why.
func (s *site) wantUnreadable(why string, edits ...edit) {
	s.t.Helper()
	runs := s.runs.Load()
	a := s.send(edits...)
	e := s.want(a, http.StatusInternalServerError, middleware.Unreadable)
	if a.problem() != "record-unreadable" || e.Err == nil || !strings.Contains(e.Err.Error(), why) {
		s.t.Errorf("problem %q, error %v, want record-unreadable and an error with %q", a.problem(), e.Err, why)
	}
	s.wantRuns(runs)
}

// Every form of storage gives the same answers.
func TestStoredForms(t *testing.T) {
	for name, opts := range forms() {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
					switch r.URL.RawQuery {
					case "slow":
						g.pass()
					case "long":
						_, _ = io.WriteString(w, strings.Repeat("x", 4001))
						return
					}
					w.Header().Set("Trailer", "X-Checksum")
					w.Header()["X-Many"] = []string{"a", "b"}
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, strings.Repeat("\x00\xff", 2000))
					w.Header().Set("X-Checksum", "abc")
				}, append(opts, middleware.WithMaxResponse(4000))...)

				first := s.send()
				s.want(first, http.StatusCreated, middleware.Executed)
				again := s.send()
				s.want(again, http.StatusCreated, middleware.Replayed)
				if again.body != first.body || len(again.header["X-Many"]) != 2 || again.trailer.Get("X-Checksum") != "abc" {
					t.Errorf("got %+v, want %+v", again, first)
				}
				s.want(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)

				long := target("/payments?long")
				s.want(s.send(key("long"), long), http.StatusOK, middleware.NotStored)
				a := s.send(key("long"), long)
				s.want(a, http.StatusConflict, middleware.NotReplayable)
				if !strings.Contains(a.body, `"original_status":200`) {
					t.Errorf("a tombstone without its status: %s", a.body)
				}

				slow := target("/payments?slow")
				done := s.inBackground(g, key("slow"), slow)
				s.want(s.send(key("slow"), slow), http.StatusConflict, middleware.InFlight)
				s.want(s.send(key("slow"), slow, body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
				close(g.open)
				s.want(<-done, http.StatusCreated, middleware.Executed)
				s.wantRuns(3)
			})
		})
	}
}

// The rotation that WithEncryption describes, on three instances that are redeployed one after the other.
func TestKeyRotation(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		instances := make([]*site, 3)
		deploy := func(i int, keys ...[]byte) {
			instances[i] = serve(t, b, payOnce(), middleware.WithEncryption(keys...), middleware.WithFailOpen())
		}
		n := 0
		understandEachOther := func() {
			t.Helper()
			for _, writer := range instances {
				n++
				k := key(fmt.Sprint(n))
				writer.want(writer.send(k), http.StatusCreated, middleware.Executed)
				for _, reader := range instances {
					reader.want(reader.send(k), http.StatusCreated, middleware.Replayed)
				}
			}
		}
		for i := range instances {
			deploy(i, master(1))
		}
		instances[0].want(instances[0].send(key("old")), http.StatusCreated, middleware.Executed)
		for _, keys := range [][][]byte{{master(1), master(2)}, {master(2), master(1)}} {
			for i := range instances {
				deploy(i, keys...)
				understandEachOther()
			}
		}

		deploy(0, master(2)) // before the retention is over
		instances[0].wantUnreadable("no key", key("old"))
		instances[1].want(instances[1].send(key("old")), http.StatusCreated, middleware.Replayed)
		b.Elapse(t, 24*time.Hour)
		for i := range instances {
			deploy(i, master(2))
			understandEachOther()
		}

		hasty, late := serve(t, b, payOnce(), middleware.WithEncryption(master(3), master(2))), instances[0]
		hasty.want(hasty.send(key("new")), http.StatusCreated, middleware.Executed)
		late.wantUnreadable("no key", key("new"))
	})
}

// Encryption is switched on while there are records, and requests in flight, that are not encrypted.
func TestPlaintextReads(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		h := func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "slow" {
				g.pass()
			}
		}
		slow, other := target("/payments?slow"), body("text/plain", "other")
		failOpen := middleware.WithFailOpen()
		plain := serve(t, b, h, failOpen)
		strict := serve(t, b, h, failOpen, middleware.WithEncryption(master(1)))
		lenient := serve(t, b, h, failOpen, middleware.WithEncryption(master(1)), middleware.WithPlaintextReads())

		done := plain.inBackground(g, key("plain"), slow)
		strict.wantUnreadable("not encrypted", key("plain"), slow)
		lenient.want(lenient.send(key("plain"), slow), http.StatusConflict, middleware.InFlight)
		lenient.want(lenient.send(key("plain"), slow, other), http.StatusUnprocessableEntity, middleware.Reused)
		g.open <- struct{}{}
		plain.want(<-done, http.StatusOK, middleware.Executed)
		strict.wantUnreadable("not encrypted", key("plain"), slow)
		lenient.want(lenient.send(key("plain"), slow), http.StatusOK, middleware.Replayed)

		done = lenient.inBackground(g, key("encrypted"), slow)
		plain.wantUnreadable("encrypted", key("encrypted"), slow)
		strict.want(strict.send(key("encrypted"), slow), http.StatusConflict, middleware.InFlight)
		strict.want(strict.send(key("encrypted"), slow, other), http.StatusUnprocessableEntity, middleware.Reused)
		g.open <- struct{}{}
		lenient.want(<-done, http.StatusOK, middleware.Executed)
		plain.wantUnreadable("encrypted", key("encrypted"), slow)
		strict.want(strict.send(key("encrypted"), slow), http.StatusOK, middleware.Replayed)
	})
}

// A dump of Redis shows neither the response nor anything to test a guess of the request with.
func TestNothingIsVisible(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, opts := range forms() {
			b.FlushAll(t)
			g := newGate()
			s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
				g.pass()
				_, _ = io.WriteString(w, "the response of a payment")
			}, append(opts, middleware.WithFingerprint("body", func(_ *http.Request, body []byte) []byte { return body }))...)

			// The same request twice, and one that differs in its body, each the first under one and the same key.
			var stored [][]byte
			for _, text := range []string{payment, payment, strings.Replace(payment, "1250", "1251", 1)} {
				done := s.inBackground(g, body("application/json", text))
				k := b.Keys(t)[0]
				claim := rawOf(t, b, k)
				g.open <- struct{}{}
				s.want(<-done, http.StatusOK, middleware.Executed)
				record := rawOf(t, b, k)
				b.FlushAll(t)

				encrypted := strings.Contains(name, "encrypted")
				fingerprint := sha256.Sum256([]byte(text))
				for _, raw := range [][]byte{claim, record} {
					if visible := bytes.Contains(raw, fingerprint[:]); visible == encrypted {
						t.Errorf("%s: the fingerprint is visible: %v", name, visible)
					}
				}
				if visible := bytes.Contains(record, []byte("payment")); visible == encrypted {
					t.Errorf("%s: the response is visible: %v", name, visible)
				}
				if encrypted {
					stored = append(stored, claim[len(claim)-noteLen:], record[recordAt:])
				}
			}
			for i, one := range stored {
				for _, other := range stored[:i] {
					if n := longestCommon(one, other); n >= 8 {
						t.Errorf("%s: %x and %x have %d bytes in common", name, one, other, n)
					}
				}
			}
		}
	})
}

// longestCommon returns the length of the longest run of bytes that a and b share.
func longestCommon(a, b []byte) (longest int) {
	for i := range a {
		for j := range b {
			n := 0
			for i+n < len(a) && j+n < len(b) && a[i+n] == b[j+n] {
				n++
			}
			longest = max(longest, n)
		}
	}
	return longest
}

func TestWrongEncryptionPanics(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	standard := keyfunc.Standard(keyfunc.Anonymous())
	for want, f := range map[string]func(){
		"middleware.WithEncryption: no key":             func() { middleware.WithEncryption() },
		"middleware.WithEncryption: key 1 has 0 bytes":  func() { middleware.WithEncryption(nil) },
		"middleware.WithEncryption: key 2 has 31 bytes": func() { middleware.WithEncryption(master(1), master(2)[1:]) },
		"middleware.WithEncryption: key 1 has 64 bytes": func() { middleware.WithEncryption(append(master(1), master(2)...)) },
		"middleware.WithPlaintextReads: ":               func() { middleware.Idempotency(locker, standard, middleware.WithPlaintextReads()) },
		"middleware.WithCompression: -1 ":               func() { middleware.WithCompression(-1) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, want) {
					t.Errorf("panic %q, want one that begins with %q", got, want)
				}
			}()
			f()
		})
	}
	// In whatever order they are given.
	middleware.Idempotency(locker, standard, middleware.WithPlaintextReads(), middleware.WithEncryption(master(1)))
}
