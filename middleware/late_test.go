package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// The tests in this file are of what comes late: a response that Redis does not take, a run whose key another has taken, and
// what a handler or a client has left behind.

// Redis does not answer for longer than a lease, and comes back: the response that this process still has is stored then,
// for what is left of its retention. Until then a duplicate gets 503, and no second run.
//
// fault: Redis silent or full for longer than a lease, and back, with WithAtMostOnce
func TestResponseIsStoredWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	const lease, retention = 3 * time.Second, time.Hour // the time is the fault
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t), lock.WithTTL(lease))
		s := serveOn(t, locker, payOnce(), middleware.WithAtMostOnce(), middleware.WithRetention(retention))
		cut := p.CutBefore(settles)
		begun := time.Now()
		if e := s.want(s.send(), http.StatusCreated, middleware.NotStored); e.Err == nil || !e.Pending {
			t.Errorf("%+v, want an Err and Pending", e)
		}
		for time.Since(begun) < 3*lease { // a reply takes none of the test's time: each try is an event
			cut.Wait(t)
			if a := s.send(); a.status != http.StatusServiceUnavailable {
				t.Fatalf("a duplicate: %d %s, want 503", a.status, a.body)
			}
			<-s.events
		}
		cut.Lift()
		eventually(t, "the response to be stored", func() bool { return locker.Stats().SettledLate > 0 })
		e := s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.wantRuns(1)
		left, err := b.Client(t).PTTL(t.Context(), e.Key).Result()
		if err != nil || left > retention-2*lease || left < retention-time.Minute {
			t.Errorf("it stays for %v, %v, want what is left of %v", left, err, retention)
		}
	})
}

// Redis refuses the writes of a process for longer than a lease, after its response was sent. A retry that another instance
// serves before the response is stored runs again by default: this is a limit of the mode. With WithAtMostOnce it does
// not, and gets the response once that is stored.
//
// fault: Redis away for longer than a lease, response pending, default mode
func TestRetryBeforeTheResponseIsStored(t *testing.T) {
	t.Parallel()
	const lease = time.Minute // Elapse ends it
	for name, test := range map[string]struct {
		opts      []middleware.Option
		status    int
		outcome   middleware.Outcome
		otherRuns int64
	}{
		"default":        {nil, http.StatusCreated, middleware.Executed, 1},
		"WithAtMostOnce": {[]middleware.Option{middleware.WithAtMostOnce()}, http.StatusConflict, middleware.OutcomeUnknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				p := redistest.NewProxy(t, b.Addr())
				first := newLocker(t, p.Client(t), lock.WithTTL(lease), lock.WithoutRenewal()) // its renewals are refused too
				s := serveOn(t, first, payOnce(), test.opts...)
				other := serveOn(t, newLocker(t, b.Client(t), lock.WithTTL(lease)), payOnce(), test.opts...)
				cut := p.CutBefore(settles)
				if e := s.want(s.send(), http.StatusCreated, middleware.NotStored); !e.Pending {
					t.Errorf("%+v, want Pending", e)
				}
				b.Elapse(t, lease)
				other.want(other.send(), test.status, test.outcome)
				cut.Lift()
				eventually(t, "the response to be stored", func() bool { return first.Stats().Pending == 0 })
				s.want(s.send(), http.StatusCreated, middleware.Replayed)
				other.want(other.send(), http.StatusCreated, middleware.Replayed)
				s.wantRuns(1)
				other.wantRuns(test.otherRuns)
			})
		})
	}
}

// Redis refuses writes for longer than a lease. The responses of one user are more than a process keeps for it, and the
// small response of another user has waited for the longest time. No retry runs again, in the default mode: it gets its
// response, or 409 if that was too large to be kept. The small response is kept.
//
// fault: Redis refuses writes for longer than a lease, pending responses exceed 64 MiB
func TestLargeResponsesDoNotDisplaceASmallOne(t *testing.T) {
	const large, size = 70, 1<<20 - 1<<10
	server := redistest.Start(t)
	locker := newLocker(t, server.Client(t), lock.WithTTL(2*time.Second), lock.WithoutRenewal())
	gates := map[string]*gate{"ann": newGate(), "eve": newGate()}
	s := serveOn(t, locker, func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := r.BasicAuth()
		gates[name].pass()
		w.WriteHeader(http.StatusCreated)
		if name == "eve" {
			_, _ = w.Write(make([]byte, size))
		}
	})
	small := s.inBackground(gates["ann"])
	var others []<-chan answer
	for i := range large {
		others = append(others, s.inBackground(gates["eve"], user("eve"), key(strconv.Itoa(i))))
	}

	config := server.Client(t)
	setMemory := func(limit string) {
		if err := config.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setMemory("1")
	close(gates["ann"].open)
	s.want(<-small, http.StatusCreated, middleware.NotStored)
	close(gates["eve"].open)
	for _, answered := range others {
		s.want(<-answered, http.StatusCreated, middleware.NotStored)
	}
	s.awaitFree(server) // the claims have expired
	setMemory("0")
	eventually(t, "all to be stored", func() bool { return locker.Stats().Pending == 0 })

	other := serveOn(t, newLocker(t, server.Client(t)), payOnce())
	s.want(s.send(), http.StatusCreated, middleware.Replayed)
	replayed := 0
	for i := range large {
		a := other.send(user("eve"), key(strconv.Itoa(i)))
		switch e := other.event(); {
		case e.Outcome == middleware.Replayed && a.status == http.StatusCreated && len(a.body) == size:
			replayed++
		case e.Outcome != middleware.NotReplayable || a.problem() != "response-not-stored":
			t.Errorf("large response %d: %d %.100s, %s", i, a.status, strings.TrimSpace(a.body), e.Outcome)
		}
	}
	if replayed < 60 || replayed == large {
		t.Errorf("%d of %d large responses were kept", replayed, large)
	}
	s.wantRuns(large + 1)
	other.wantRuns(0)
}

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
	t.Parallel()
	b := redistest.Mini(t)
	run := beginLost(t, b, own)
	rival := serveKeyed(t, newLocker(t, b.Client(t)), fixedKey, payOnce())
	rival.want(rival.send(), http.StatusCreated, middleware.Executed)
	key, codec := b.Keys(t)[0], new(record.Codec)
	value := rawOf(t, b, key)
	stored, err := codec.Decode(key, value[recordAt:])
	if err != nil {
		t.Fatal(err)
	}
	stored.Body = []byte("no response")
	if err := b.Client(t).Set(t.Context(), key, codec.Append(value[:recordAt:recordAt], key, &stored), time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	run.wantLost(run.end(), http.StatusInternalServerError, "record-unreadable")
	rival.wantUnreadable("not an HTTP response")
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

// hanging is a writer whose second Write takes until the client reads.
type hanging struct {
	*httptest.ResponseRecorder
	writes         int
	entered, reads chan struct{}
}

func (w *hanging) Write(p []byte) (int, error) {
	if w.writes++; w.writes == 2 {
		close(w.entered)
		<-w.reads
	}
	return len(p), nil
}

// The key is settled though a goroutine that the handler has left behind is stuck in a Write, and however the handler
// has ended. ServeHTTP returns after that Write, and then the goroutine can neither write nor read.
func TestSettledThoughAWriteHangs(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"return": func() {}, "panic": func() { panic(http.ErrAbortHandler) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := redistest.Mini(t)
			w := &hanging{ResponseRecorder: httptest.NewRecorder(), entered: make(chan struct{}), reads: make(chan struct{})}
			left, returned := make(chan error, 2), make(chan any, 1)
			h := middleware.Idempotency(newLocker(t, b.Client(t)), fixedKey)(http.HandlerFunc(func(w2 http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w2, "begun")
				w2.(http.Flusher).Flush()
				go func() {
					_, _ = io.WriteString(w2, "stuck")
					_, err := io.WriteString(w2, "late")
					left <- err
					_, err = r.Body.Read(make([]byte, 1))
					left <- err
				}()
				<-w.entered
				end()
			}))
			go func() {
				defer func() { returned <- recover() }()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body")))
			}()
			<-w.entered
			eventually(t, "the key to be settled", func() bool {
				value, _ := b.Raw(t, b.Keys(t)[0])
				return strings.HasPrefix(value, "OGv")
			})
			if name == "return" && len(returned) > 0 {
				t.Error("ServeHTTP has returned before the Write")
			}
			close(w.reads)
			<-returned
			for range 2 {
				if err := <-left; err == nil {
					t.Error("a call after the end: no error")
				}
			}
		})
	}
}

// Whatever panics, or calls runtime.Goexit: if the handler has run, the observer is called once.
func TestPanicsAreObserved(t *testing.T) {
	t.Parallel()
	keep := func(_ http.ResponseWriter, r *http.Request) { middleware.FromContext(r.Context()).Keep() }
	for how, fail := range map[string]func(){"panics": func() { panic(http.ErrAbortHandler) }, "exits": runtime.Goexit} {
		stops := func(op string) *memJournal {
			j := newJournal(false)
			j.setHooks(func(got string) error {
				if got == op {
					fail()
				}
				return nil
			}, nil)
			return j
		}
		trace := middleware.WithTraceparent(func(context.Context) string { fail(); return "" })
		for name, p := range map[string]struct {
			handler http.HandlerFunc
			opts    []middleware.Option
			looks   int // of Written, at which it fails
		}{
			"the handler":           {handler: func(http.ResponseWriter, *http.Request) { fail() }},
			"the handler, kept":     {handler: func(w http.ResponseWriter, r *http.Request) { keep(w, r); fail() }},
			"WithStored":            {handler: payOnce(), opts: []middleware.Option{middleware.WithStored(func(int) bool { fail(); return false })}},
			"WithTraceparent":       {handler: payOnce(), opts: []middleware.Option{trace}},
			"WithTraceparent, kept": {handler: keep, opts: []middleware.Option{trace}},
			"Written after the run": {handler: keep, looks: 2},
			"Begin of a journal":    {handler: keep, opts: []middleware.Option{middleware.WithJournal(stops("begin"))}},
			"End of a journal":      {handler: keep, opts: []middleware.Option{middleware.WithJournal(stops("end"))}},
			"End, at most once":     {handler: keep, opts: []middleware.Option{middleware.WithJournal(stops("end")), middleware.WithAtMostOnce()}},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				runs, events, done := 0, 0, make(chan struct{})
				h := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), fixedKey, append(p.opts,
					middleware.WithObserver(func(context.Context, middleware.Event) { events++ }))...)(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { runs++; p.handler(w, r) }))
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					h.ServeHTTP(&failing{httptest.NewRecorder(), p.looks, fail}, httptest.NewRequest(http.MethodPost, "/", nil))
				}()
				<-done
				if runs != events {
					t.Errorf("the handler ran %d times, the observer was called %d times", runs, events)
				}
			})
		}
	}
}

// failing is a ResponseWriter that fails when it is asked for the n-th time whether it was written to.
type failing struct {
	*httptest.ResponseRecorder
	n    int
	fail func()
}

func (w *failing) Written() bool {
	if w.n--; w.n == 0 {
		w.fail()
	}
	return false
}

// A client that shuts down its write side after the request still reads. net/http ends the request's context, as if the
// client had disconnected. A run goes on and its response is sent. A duplicate does not wait: it is told to retry, and gives
// its place to another.
//
// fault: the client shuts down its write side -> the run's response is sent; a duplicate gets 409 at once
func TestHalfClosedConnection(t *testing.T) {
	t.Parallel()
	g := newGate()
	s := serveWaiting(t, redistest.Mini(t).Client(t), behind(t, g, payOnce()), middleware.WithWait(30*time.Second, 1))
	ask := func() (read func() *http.Response) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := s.request().Write(conn); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		return func() *http.Response {
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp
		}
	}
	first := ask()
	<-g.entered
	for range 3 {
		resp := ask()()
		e := s.event()
		if resp.StatusCode != http.StatusConflict || resp.Header.Get("Retry-After") == "" || e.Outcome != middleware.InFlight || e.Err != nil {
			t.Errorf("a duplicate got %d, %+v", resp.StatusCode, e)
		}
	}
	close(g.open)
	if resp := first(); resp.StatusCode != http.StatusCreated {
		t.Errorf("the first got %d", resp.StatusCode)
	}
	if e := s.event(); e.Outcome != middleware.Executed {
		t.Errorf("%+v, want executed", e)
	}
	s.wantRuns(1)
}

// An outer middleware may replace the request's context in place, as chi's render.Status does, once the request is over.
// What a run has left behind, such as a hook of the Redis client, still sees the values of the first one.
func TestValuesOutliveTheRequest(t *testing.T) {
	t.Parallel()
	type name struct{}
	var left context.Context
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), headerKey)
	h := once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { left = r.Context() }))
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	r = r.WithContext(context.WithValue(r.Context(), name{}, "arrived"))
	h.ServeHTTP(httptest.NewRecorder(), r)
	*r = *r.WithContext(context.WithValue(context.Background(), name{}, "replaced"))
	if got := left.Value(name{}); got != "arrived" {
		t.Errorf("value %v, want that of the context that the request came with", got)
	}
}
