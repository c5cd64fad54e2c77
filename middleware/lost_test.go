package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// In the tests in this file a run loses its lease to another process, and ends afterwards.

// lost is a run that waits in its handler, and answers 202 then, on a site whose outer middleware sets X-Request-Id.
type lost struct {
	*site
	proxy *redistest.Proxy
	gate  *gate
	done  <-chan answer
}

// beginLost begins the run, and frees its key under it.
func beginLost(t *testing.T, b redistest.Backend, answer http.HandlerFunc, opts ...middleware.Option) lost {
	t.Helper()
	l := lost{proxy: redistest.NewProxy(t, b.Addr()), gate: newGate()}
	locker := newLocker(t, l.proxy.Client(t))
	l.site = serveKeyed(t, locker, fixedKey, behind(t, l.gate, answer), opts...)
	l.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "today")
			next.ServeHTTP(w, r)
		})
	}
	l.done = l.inBackground(l.gate)
	b.FlushAll(t)
	return l
}

// own answers 202, and with all of a header that another response must not have.
func own(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Own", "own")
	w.Header().Set("X-Request-Id", "own")
	w.Header().Set("Trailer", "X-Sum")
	w.Header().Set(http.TrailerPrefix+"X-Own", "own")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "receipt 2")
}

// end lets the handler return, and returns what the client gets.
func (l lost) end() answer {
	close(l.gate.open)
	return <-l.done
}

// wantLost checks what the event says, and that the client got nothing of the run's own response.
func (l lost) wantLost(a answer, status int, problem string) {
	l.t.Helper()
	e := l.want(a, status, middleware.LeaseLost)
	if e.Status != status || !errors.Is(e.Err, lock.ErrLost) || !strings.Contains(e.Err.Error(), "answered 202") || e.Pending {
		l.t.Errorf("%+v, want the status of the response, ErrLost, and the status of the run", e)
	}
	if a.problem() != problem {
		l.t.Errorf("problem %q, want %q", a.problem(), problem)
	}
	_, own := a.header["X-Own"]
	if own || a.header.Get("X-Request-Id") != "today" || len(a.trailer) > 0 || strings.Contains(a.body, "receipt 2") {
		l.t.Errorf("%+v, want nothing of the run's own", a)
	}
	if got, want := a.header.Get("X-Should-Retry") == "true", problem == "in-flight" || problem == "store-unavailable"; got != want {
		l.t.Errorf("X-Should-Retry %v, want %v", got, want)
	}
	l.noEvent()
	l.wantRuns(1)
}

// The client of a run that lost its key gets what the other request left.
//
// conformance: 28
func TestKeyTakenByAnother(t *testing.T) {
	other := body("application/json", "{}")
	custom := middleware.WithFingerprint("custom", func(*http.Request, []byte) []byte { return nil })
	receipt := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "receipt 1") }
	panics := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	breaksOff := func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		opts    []middleware.Option
		edits   []edit
		running bool // when the run ends
		elapsed bool // its lease

		status  int
		problem string
		body    string
	}{
		"the same response":  {handler: receipt, status: 200, body: "receipt 1"},
		"a tombstone":        {handler: receipt, opts: []middleware.Option{middleware.WithMaxResponse(1)}, status: 409, problem: "response-not-stored"},
		"an unknown outcome": {handler: breaksOff, status: 409, problem: "response-not-stored"},
		"in flight":          {handler: receipt, running: true, status: 409, problem: "in-flight"},
		"abandoned": {
			handler: panics, opts: []middleware.Option{middleware.WithAtMostOnce()}, elapsed: true, status: 409, problem: "outcome-unknown",
		},
		"another request's":            {handler: receipt, edits: []edit{other}, status: 409, problem: "outcome-unknown"},
		"another request's, in flight": {handler: receipt, edits: []edit{other}, running: true, status: 409, problem: "outcome-unknown"},
		"another kind":                 {handler: receipt, opts: []middleware.Option{custom}, status: 409, problem: "outcome-unknown"},
		"another kind, in flight":      {handler: receipt, opts: []middleware.Option{custom}, running: true, status: 409, problem: "in-flight"},
		"encrypted": {
			handler: receipt, opts: []middleware.Option{middleware.WithEncryption(master(1))}, status: 500, problem: "record-unreadable",
		},
	} {
		for how, stored := range map[string][]middleware.Option{
			"settles": nil, "releases": {middleware.WithStored(func(int) bool { return false })},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				both(t, func(t *testing.T, b redistest.Backend) {
					run := beginLost(t, b, own, stored...)
					g := newGate()
					rival := serveKeyed(t, newLocker(t, b.Client(t)), fixedKey, behind(t, g, test.handler), test.opts...)
					edits := append([]edit{noRetry}, test.edits...)
					r := rival.request(edits...)
					theirs := make(chan struct{})
					go func() {
						defer close(theirs)
						_, _ = rival.try(r) // its connection may break
					}()
					<-g.entered
					if !test.running {
						close(g.open)
						<-theirs
					}
					if test.elapsed {
						b.Elapse(t, leaseTTL)
					}
					key := b.Keys(t)[0]
					before := rawOf(t, b, key)

					a := run.end()
					run.wantLost(a, test.status, test.problem)
					if a.replayed() != (test.problem == "") || test.body != "" && a.body != test.body {
						t.Errorf("%+v, want %q, replayed", a, test.body)
					}
					if got := a.header.Get("Retry-After"); (got != "") != (test.problem == "in-flight") {
						t.Errorf("Retry-After %q", got)
					}
					if after := rawOf(t, b, key); string(after) != string(before) {
						t.Error("what another has written was changed")
					}
					if test.running {
						close(g.open)
						<-theirs
					}
					rival.wantRuns(1)
				})
			})
		}
	}
}

// What the other request left has a payload that is no response: a later release may have written it.
func TestKeyTakenByAnUnreadableResponse(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		run := beginLost(t, b, own)
		rival := serveKeyed(t, newLocker(t, b.Client(t)), fixedKey, payOnce())
		rival.want(rival.send(), http.StatusCreated, middleware.Executed)
		const valueHead = 28 // of what the lock stores
		key, codec := b.Keys(t)[0], new(record.Codec)
		value := rawOf(t, b, key)
		stored, err := codec.Decode(key, value[valueHead:])
		if err != nil {
			t.Fatal(err)
		}
		stored.Body = []byte("no response")
		if err := b.Client(t).Set(t.Context(), key, codec.Append(value[:valueHead:valueHead], key, &stored), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		run.wantLost(run.end(), http.StatusInternalServerError, "record-unreadable")
	})
}

// firstSettle and firstRelease match the scripts of a run on a server that does not know them yet.
func firstSettle(c redistest.Command) bool  { return c.Name == "EVAL" && settles(c) }
func firstRelease(c redistest.Command) bool { return c.Name == "EVAL" && !settles(c) }

// The other request has freed the key before this run claims it again: the run settles or frees it after all, and its
// own response is sent.
func TestKeyTakenAndFreedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		opts   []middleware.Option
		ends   redistest.Match
		again  middleware.Outcome
		runs   int64
		status int
	}{
		"settles": {nil, firstSettle, middleware.Replayed, 1, 202},
		"releases": {
			[]middleware.Option{middleware.WithStored(func(int) bool { return false })}, firstRelease, middleware.Freed, 2, 202,
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				run := beginLost(t, b, own, test.opts...)
				rival := newLocker(t, b.Client(t))
				claim, err := rival.Claim(t.Context(), "k", nil, 0)
				if err != nil || claim.State != lock.Granted {
					t.Fatal(claim.State, err)
				}
				refused := run.proxy.HoldReply(test.ends)
				close(run.gate.open)
				refused.Wait(t)
				if err := claim.Lease.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				refused.Lift()
				a := <-run.done
				e := run.want(a, http.StatusAccepted, middleware.LeaseLost)
				if a.body != "receipt 2" || a.header.Get("X-Own") != "own" || a.replayed() {
					t.Errorf("%+v, want the run's own response", a)
				}
				if !errors.Is(e.Err, lock.ErrLost) || !strings.Contains(e.Err.Error(), "answered 202") {
					t.Errorf("%+v, want ErrLost and the run's status", e)
				}
				run.noEvent()
				again := run.send()
				run.want(again, test.status, test.again)
				if again.body != "receipt 2" {
					t.Errorf("again %q", again.body)
				}
				run.wantRuns(test.runs)
			})
		})
	}
}

// A response of which a byte has left is sent to its end, and what another request has stored stays.
func TestKeyTakenAfterAByteHasLeft(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		run := beginLost(t, b, func(w http.ResponseWriter, r *http.Request) {
			own(w, r)
			w.(http.Flusher).Flush()
		})
		rival := serveKeyed(t, newLocker(t, b.Client(t)), fixedKey, payOnce())
		rival.want(rival.send(), http.StatusCreated, middleware.Executed)
		run.proxy.Reset()
		a := run.end()
		e := run.want(a, http.StatusAccepted, middleware.LeaseLost)
		if a.body != "receipt 2" || !errors.Is(e.Err, lock.ErrLost) {
			t.Errorf("%+v, %+v, want the run's own response, and ErrLost", a, e)
		}
		if got := run.proxy.RoundTrips(); got != 1 {
			t.Errorf("%q, want the Settle alone", run.proxy.Commands())
		}
		run.want(run.send(), http.StatusCreated, middleware.Replayed)
	})
}

// A handler that panics after Keep has lost its key, too: the outcome is not hidden by the panic.
func TestKeyTakenAndPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, first := new(canned), true
		var events []middleware.Event
		_, send := protect(t, store, func(_ http.ResponseWriter, r *http.Request) {
			if !first {
				middleware.FromContext(r.Context()).Keep()
				store.taken, store.claim = true, bulk(store.settled)
				panic(http.ErrAbortHandler)
			}
			first = false
		}, middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) }))
		send(&discarded{header: http.Header{}}, 10)
		if returned := inBubble(send, &discarded{header: http.Header{}}); !returned() || len(events) != 2 {
			t.Fatalf("%+v, want two events", events)
		}
		e := events[1]
		if e.Outcome != middleware.LeaseLost || !errors.Is(e.Err, lock.ErrLost) || !strings.Contains(e.Err.Error(), "panicked") {
			t.Errorf("%s, %v; want lease-lost, ErrLost, and the panic", e.Outcome, e.Err)
		}
	})
}

// The handler has left a goroutine behind that is in a method of the writer. The other's response waits for it.
func TestKeyTakenWhileACallHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, store, first := newStuck("WriteHeader 103"), new(canned), true
		_, send := protect(t, store, func(rec http.ResponseWriter, _ *http.Request) {
			if first {
				_, _ = io.WriteString(rec, "receipt 1")
				return
			}
			go rec.WriteHeader(http.StatusEarlyHints)
			<-w.entered
			store.taken, store.claim = true, bulk(store.settled)
			rec.Header().Set("X-Own", "own") // and no status: that would wait for the call
			rec.Header().Set("X-Request-Id", "own")
		})
		send(&discarded{header: http.Header{}}, 10)
		first = false
		w.header.Set("X-Request-Id", "today")
		returned := inBubble(send, w)
		if want := []string{"WriteHeader 103"}; returned() || !slices.Equal(w.calls, want) {
			t.Errorf("calls %q while one hangs, want %q", w.calls, want)
		}
		close(w.reads)
		if want := []string{"WriteHeader 103", "WriteHeader 200", "Write receipt 1"}; !returned() || !slices.Equal(w.calls, want) {
			t.Errorf("calls %q, want %q", w.calls, want)
		}
		if got := w.sent; got.Get("X-Own") != "" || got.Get("X-Request-Id") != "today" || got.Get("Idempotent-Replayed") != "true" {
			t.Errorf("header %v, want the other's", got)
		}
	})
}
