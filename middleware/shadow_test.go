package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// shadow serves h in shadow on a miniredis.
func shadow(t *testing.T, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	return serve(t, redistest.Mini(t), h, append(opts, middleware.WithShadow())...)
}

// wantShadow checks the status that the client got and what would have happened.
func (s *site) wantShadow(a answer, status int, outcome middleware.Outcome, would int) middleware.Event {
	s.t.Helper()
	e := s.want(a, status, outcome)
	if !e.Shadow || e.Status != would {
		s.t.Errorf("Event %+v, want Shadow and status %d", e, would)
	}
	if a.replayed() || a.problem() != "" || a.header.Get("X-Should-Retry") != "" {
		s.t.Errorf("the middleware answered: %v %s", a.header, a.body)
	}
	return e
}

// A client that uses a key for two payments has both executed, as without the middleware, and the operator sees the 422
// that the second one would have got.
func TestShadowShowsAWrongClient(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce(), middleware.WithShadow(), middleware.WithRequired(), middleware.WithAtMostOnce())
		first := s.send()
		s.wantShadow(first, 201, middleware.Executed, 201)
		other := s.send(body("application/json", `{"amount":99,"currency":"EUR"}`))
		s.wantShadow(other, 201, middleware.Reused, 422)
		missing := s.send(noKey)
		s.wantShadow(missing, 201, middleware.MissingKey, 400)
		again := s.send()
		if e := s.wantShadow(again, 201, middleware.Replayed, 201); !e.Differs {
			t.Error("the payment was made twice, and Differs is false")
		}
		if again.body == first.body {
			t.Errorf("both got %s", again.body)
		}
		s.wantRuns(4)
		s.noEvent()
	})
}

func TestShadowComparesWhatWouldBeReplayed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second  string
		status  int
		cookie  bool
		opts    []middleware.Option
		differs bool
	}{
		"the same":                  {"done", 201, false, nil, false},
		"another body":              {"gone", 201, false, nil, true},
		"longer":                    {"done.", 201, false, nil, true},
		"another status":            {"done", 200, false, nil, true},
		"a cookie":                  {"done", 201, true, nil, true},
		"a cookie that is replayed": {"done", 201, true, []middleware.Option{middleware.WithCookies()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			s := shadow(t, func(w http.ResponseWriter, r *http.Request) {
				status, text := test.status, test.second
				if n++; n == 1 {
					status, text = 201, "done"
				}
				if test.cookie {
					http.SetCookie(w, &http.Cookie{Name: "session", Value: "s"})
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
			}, test.opts...)
			first := middleware.Executed
			if test.cookie && test.opts == nil {
				first = middleware.CookiesDropped
			}
			s.wantShadow(s.send(), 201, first, 201)
			if e := s.wantShadow(s.send(), test.status, middleware.Replayed, 201); e.Differs != test.differs {
				t.Errorf("Differs = %v", e.Differs)
			}
		})
	}
}

// Two at once both run at once: the second waits for nothing, whatever WithWait says.
func TestShadowDoesNotWait(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			g.pass()
			w.WriteHeader(201)
		}, middleware.WithShadow(), middleware.WithWait(time.Hour))
		first := s.inBackground(g)
		second := s.inBackground(g) // is in the handler while the first is
		close(g.open)
		outcomes := map[middleware.Outcome]int{}
		for _, done := range []<-chan answer{first, second} {
			if a := <-done; a.status != 201 {
				t.Errorf("got %d %s", a.status, a.body)
			}
			outcomes[s.event().Outcome]++
		}
		if outcomes[middleware.Executed] != 1 || outcomes[middleware.InFlight] != 1 {
			t.Errorf("outcomes %v", outcomes)
		}
	})
}

func TestShadowNeverRefusesAKey(t *testing.T) {
	t.Parallel()
	failing := errors.New("no such column")
	for name, test := range map[string]struct {
		key     keyfunc.Func
		edit    edit
		opts    []middleware.Option
		outcome middleware.Outcome
		would   int
		err     string
	}{
		"no key":       {nil, noKey, nil, middleware.Unprotected, 0, ""},
		"required":     {nil, noKey, []middleware.Option{middleware.WithRequired()}, middleware.MissingKey, 400, ""},
		"malformed":    {nil, key("a b"), nil, middleware.InvalidKey, 400, "malformed"},
		"nobody":       {keyfunc.Standard(keyfunc.User(func(context.Context) string { return "" })), key("a"), nil, middleware.NoUser, 401, ""},
		"it fails":     {func(*http.Request) (string, error) { return "", failing }, key("a"), nil, middleware.KeyFailed, 500, "no such column"},
		"it panics":    {func(*http.Request) (string, error) { panic("secret") }, key("a"), nil, middleware.KeyFailed, 500, "panicked"},
		"it reads":     {keyfunc.Body(), key("a"), nil, middleware.Executed, 201, ""},
		"it reads all": {func(r *http.Request) (string, error) { return "k", r.ParseForm() }, key("a"), nil, middleware.Executed, 201, ""},
		"it uses the body up": {func(r *http.Request) (string, error) {
			_, err := io.Copy(io.Discard, r.Body)
			return "k", errors.Join(err, r.Body.Close())
		}, key("a"), nil, middleware.KeyFailed, 500, "used up"},
		"a fingerprint that panics": {keyfunc.Header("Idempotency-Key"), key("a"), []middleware.Option{
			middleware.WithFingerprint("x", func(*http.Request, []byte) []byte { panic("secret") }),
		}, middleware.KeyFailed, 500, "panicked"},
		"a WithStored that panics": {nil, key("a"), []middleware.Option{
			middleware.WithStored(func(int) bool { panic("secret") }),
		}, middleware.Panicked, 201, "WithStored, WithNothingHappened or WithTraceparent panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.key == nil {
				test.key = keyfunc.Standard(keyfunc.BasicUser())
			}
			s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), test.key, answerBody, append(test.opts, middleware.WithShadow())...)
			a := s.send(test.edit)
			e := s.wantShadow(a, 201, test.outcome, test.would)
			if a.body != payment {
				t.Errorf("the handler read %q", a.body)
			}
			if got := fmt.Sprint(e.Err); test.err == "" && e.Err != nil || !strings.Contains(got, test.err) || strings.Contains(got, "secret") {
				t.Errorf("Err = %v, want %q in it", e.Err, test.err)
			}
			s.wantRuns(1)
			s.noEvent()
		})
	}
}

// answerBody answers with the body that it reads.
func answerBody(w http.ResponseWriter, r *http.Request) {
	got, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), 599)
		return
	}
	w.WriteHeader(201)
	_, _ = w.Write(got)
}

// A body that would be refused reaches the handler whole, and the connection stays open.
func TestShadowLeavesALongBodyAlone(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 1000)
	for name, edit := range map[string]edit{
		"with its length": body("text/plain", long),
		"in chunks": func(r *http.Request) {
			body("text/plain", long)(r)
			r.ContentLength = -1
		},
	} {
		for keyName, k := range map[string]keyfunc.Func{"header": keyfunc.Header("Idempotency-Key"), "body": keyfunc.Body()} {
			t.Run(name+", key in the "+keyName, func(t *testing.T) {
				t.Parallel()
				s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), k, answerBody, middleware.WithShadow(), middleware.WithMaxBody(100))
				a := s.send(edit)
				s.wantShadow(a, 201, middleware.TooLarge, 413)
				if a.body != long || a.header.Get("Connection") == "close" {
					t.Errorf("got %d bytes, Connection %q", len(a.body), a.header.Get("Connection"))
				}
			})
		}
	}
}

// The handler gets the beginning of a body that is too long before its end was sent.
func TestShadowStreamsALongBody(t *testing.T) {
	t.Parallel()
	read := make(chan string)
	s := shadow(t, func(w http.ResponseWriter, r *http.Request) {
		half := make([]byte, 150)
		_, err := io.ReadFull(r.Body, half)
		read <- fmt.Sprint(len(half), err)
		rest, err := io.ReadAll(r.Body)
		read <- fmt.Sprint(len(rest), err)
	}, middleware.WithMaxBody(100))
	reader, writer := io.Pipe()
	go func() {
		_, _ = writer.Write(make([]byte, 150))
		if got := <-read; got != "150 <nil>" {
			t.Errorf("of the beginning the handler got %s", got)
		}
		_, _ = writer.Write(make([]byte, 1000))
		_ = writer.Close()
		if got := <-read; got != "1000 <nil>" {
			t.Errorf("of the rest the handler got %s", got)
		}
	}()
	a := s.send(func(r *http.Request) { r.Body, r.ContentLength = reader, -1 })
	s.wantShadow(a, 200, middleware.TooLarge, 413)
}

// A body of unknown length on HTTP/2 may be one half of a conversation.
func TestShadowDoesNotReadAConversation(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]keyfunc.Func{"header": keyfunc.Header("Idempotency-Key"), "body": keyfunc.JSON("/id")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := make(chan middleware.Event, 1)
			handler := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), k, middleware.WithShadow(),
				middleware.WithObserver(func(_ context.Context, e middleware.Event) { events <- e }),
			)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(201)
				_ = http.NewResponseController(w).Flush()
				_, _ = io.Copy(w, r.Body)
			}))
			server := httptest.NewUnstartedServer(handler)
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			reader, writer := io.Pipe()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, reader)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "k")
			resp, err := server.Client().Do(r) // returns although no body was sent
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.WriteString(writer, "hello")
			_ = writer.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != "hello" || resp.ProtoMajor != 2 {
				t.Errorf("%q, %v, %s", got, err, resp.Proto)
			}
			if e := <-events; e.Outcome != middleware.Unprotected || e.Err == nil || !e.Shadow {
				t.Errorf("%+v", e)
			}
		})
	}
}

// The handler meets the end of a broken body where it would without the middleware.
func TestShadowPassesABrokenBodyOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var events []middleware.Event
	handler := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"), middleware.WithShadow(),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) }),
	)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for range 2 {
			got, err := io.ReadAll(r.Body)
			if !errors.Is(err, broken) {
				t.Errorf("the handler got %q, %v", got, err)
			}
		}
	}))
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	r.Header.Set("Idempotency-Key", "k")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	if len(events) != 1 || events[0].Outcome != middleware.BodyUnreadable || events[0].Status != 400 || !errors.Is(events[0].Err, broken) {
		t.Errorf("%+v", events)
	}
}

// A Redis that is silent costs one request the time for one operation, and those behind it nothing.
func TestShadowWithoutRedis(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
	locker := lock.New(proxy.Client(t), "test", lock.WithOpTimeout(100*time.Millisecond))
	t.Cleanup(func() { // it names the keys of claims that it cannot release in that time
		if err := locker.Close(context.Background()); err != nil && !errors.Is(err, lock.ErrUnreleased) {
			t.Error(err)
		}
	})
	s := serveOn(t, locker, payOnce(), middleware.WithShadow(), middleware.WithAtMostOnce())
	proxy.BlackHole()
	if e := s.wantShadow(s.send(), 201, middleware.StoreUnavailable, 503); e.Err == nil {
		t.Error("the Event has no error")
	}
	paused := false
	for range 20 {
		e := s.wantShadow(s.send(), 201, middleware.StoreUnavailable, 503)
		paused = paused || e.Claim.Start.IsZero() && e.Err != nil
	}
	if !paused {
		t.Error("each request asked Redis")
	}
	proxy.Heal()
}

// While Redis is late, the outcome is the one that the run would have had, as far as that is known.
func TestShadowOutcomeWhileRedisIsLate(t *testing.T) {
	t.Parallel()
	unknown := func(w http.ResponseWriter, r *http.Request) {
		_ = flushIt(w)
		middleware.FromContext(r.Context()).Unknown()
	}
	discard := func(_ http.ResponseWriter, r *http.Request) { _ = middleware.FromContext(r.Context()).Discard() }
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    middleware.Outcome
		stores  bool
	}{
		"stored":  {func(http.ResponseWriter, *http.Request) {}, middleware.NotStored, true},
		"freed":   {discard, middleware.Freed, false},
		"unknown": {unknown, middleware.Unknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
			s := serveOn(t, newLocker(t, proxy.Client(t), lock.WithOpTimeout(2*time.Second)), test.handler, middleware.WithShadow())
			held := proxy.HoldRequest(redistest.Named("EVALSHA", "EVAL"))
			e := s.wantShadow(s.send(), 200, test.want, 200)
			if e.Err == nil || (e.Size > 0) != test.stores {
				t.Errorf("%+v, want an error, and a size %v", e, test.stores)
			}
			held.Lift()
			eventually(t, "the key to be settled or free", func() bool {
				info, err := s.locker.Inspect(t.Context(), e.Key)
				return err == nil && (info.State == lock.Settled) == test.stores && info.State != lock.Held
			})
		})
	}
}

// A response whose storing hangs goes out all the same, whole, and is stored later.
func TestShadowDoesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
	s := serveOn(t, newLocker(t, proxy.Client(t), lock.WithOpTimeout(5*time.Second)), payOnce(), middleware.WithShadow())
	held := proxy.HoldRequest(redistest.Named("EVALSHA", "EVAL"))
	a := s.send()
	e := s.wantShadow(a, 201, middleware.NotStored, 201)
	if !e.Pending || !errors.Is(e.Err, lock.ErrPending) {
		t.Errorf("%+v, want it pending", e)
	}
	held.Lift()
	eventually(t, "the value to be stored", func() bool {
		info, err := s.locker.Inspect(t.Context(), e.Key)
		return err == nil && info.State == lock.Settled
	})
}

func TestShadowFailsOpen(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
	s := serveOn(t, newLocker(t, proxy.Client(t), lock.WithOpTimeout(100*time.Millisecond)), payOnce(),
		middleware.WithShadow(), middleware.WithFailOpen())
	proxy.BlackHole()
	if e := s.wantShadow(s.send(), 201, middleware.Unprotected, 0); e.Err == nil {
		t.Error("the Event has no error")
	}
	proxy.Heal()
}

// Also after the Locker was closed every request runs.
func TestShadowAfterClose(t *testing.T) {
	t.Parallel()
	s := shadow(t, payOnce())
	if err := s.locker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := s.wantShadow(s.send(), 201, middleware.StoreUnavailable, 503); !errors.Is(e.Err, lock.ErrClosed) {
		t.Errorf("Err = %v", e.Err)
	}
}

// An unknown outcome shows what WithAtMostOnce would refuse.
func TestShadowUnknownOutcome(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			middleware.WithShadow(), middleware.WithAtMostOnce())
		fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // does not repeat a request by itself
		for i, want := range []middleware.Outcome{middleware.Panicked, middleware.InFlight, middleware.OutcomeUnknown} {
			if i == 2 {
				b.Elapse(t, 11*time.Second)
			}
			if resp, err := fresh.Do(s.request()); err == nil {
				t.Errorf("the panic became %s", resp.Status)
				resp.Body.Close()
			}
			if e := s.event(); e.Outcome != want || !e.Shadow || e.Err == nil && i != 1 {
				t.Errorf("try %d: %+v, want %s", i+1, e, want)
			}
		}
		s.wantRuns(3)
	})
}

// An instance that acts sees nothing of what an instance in shadow has stored, and the reverse.
func TestShadowHasKeysOfItsOwn(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		watching := serve(t, b, payOnce(), middleware.WithShadow(), middleware.WithAtMostOnce())
		acting := serve(t, b, payOnce(), middleware.WithAtMostOnce())
		watching.wantShadow(watching.send(), 201, middleware.Executed, 201)
		first := acting.send()
		acting.want(first, 201, middleware.Executed)
		again := acting.send()
		acting.want(again, 201, middleware.Replayed)
		if again.body != first.body {
			t.Errorf("replayed %s, want %s", again.body, first.body)
		}
		acting.send(key("k2"))
		acting.event()
		watching.wantShadow(watching.send(key("k2")), 201, middleware.Executed, 201)
	})
}

// Nothing of a response is in Redis, and the retention is the usual one.
func TestShadowStoresNoResponse(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Secret", "classified")
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "classified"})
			_, _ = io.WriteString(w, "classified")
		}, middleware.WithShadow(), middleware.WithRetention(time.Minute))
		s.wantShadow(s.send(), 200, middleware.CookiesDropped, 200)
		keys := b.Keys(t)
		if len(keys) != 1 {
			t.Fatalf("keys %q", keys)
		}
		if value, _ := b.Raw(t, keys[0]); strings.Contains(value, "classified") || strings.Contains(value, "1250") {
			t.Errorf("stored: %q", value)
		}
		b.Elapse(t, 61*time.Second)
		s.wantShadow(s.send(), 200, middleware.CookiesDropped, 200)
	})
}

// What would not have been stored frees the key, and what could not have been replayed says so.
func TestShadowEndings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		opts   []middleware.Option
		status int
		first  middleware.Outcome
		again  middleware.Outcome
	}{
		"a 404": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, nil, 404, middleware.Freed, middleware.Freed},
		"a 500": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, nil, 500, middleware.Freed, middleware.Freed},
		"a 500 for money": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
			[]middleware.Option{middleware.WithAtMostOnce()}, 500, middleware.Executed, middleware.Replayed},
		"nothing written": {func(http.ResponseWriter, *http.Request) {}, nil, 200, middleware.Executed, middleware.Replayed},
		"too long": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "longer") },
			[]middleware.Option{middleware.WithMaxResponse(5)}, 200, middleware.NotStored, middleware.NotReplayable},
		"Keep": {func(w http.ResponseWriter, r *http.Request) {
			middleware.FromContext(r.Context()).Keep()
			w.WriteHeader(503)
		}, nil, 503, middleware.Executed, middleware.Replayed},
		"Discard": {func(w http.ResponseWriter, r *http.Request) {
			_ = middleware.FromContext(r.Context()).Discard()
			w.WriteHeader(201)
		}, nil, 201, middleware.Freed, middleware.Freed},
		"Discard and Flush": {func(w http.ResponseWriter, r *http.Request) {
			_ = middleware.FromContext(r.Context()).Discard()
			_ = http.NewResponseController(w).Flush()
		}, nil, 200, middleware.Executed, middleware.Replayed},
		"Unknown": {func(w http.ResponseWriter, r *http.Request) {
			middleware.FromContext(r.Context()).Unknown()
			w.WriteHeader(201)
		}, nil, 201, middleware.Unknown, middleware.InFlight},
		"Unknown and Flush": {func(w http.ResponseWriter, r *http.Request) {
			middleware.FromContext(r.Context()).Unknown()
			_ = http.NewResponseController(w).Flush()
		}, nil, 200, middleware.Unknown, middleware.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shadow(t, test.handle, test.opts...)
			a := s.send()
			s.wantShadow(a, test.status, test.first, test.status)
			a = s.send()
			if e := s.want(a, test.status, test.again); e.Differs {
				t.Errorf("%+v", e)
			}
			s.wantRuns(2)
		})
	}
}

// The handler's context ends with the request's and not before: neither WithMaxDuration nor a lost lease ends it.
func TestShadowLeavesTheContextAlone(t *testing.T) {
	t.Parallel()
	s := shadow(t, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Deadline(); ok {
			t.Error("the handler has a deadline")
		}
		select {
		case <-r.Context().Done():
			t.Error("the context ended")
		case <-time.After(20 * time.Millisecond): // longer than WithMaxDuration
		}
		w.WriteHeader(201)
	}, middleware.WithMaxDuration(time.Millisecond))
	if e := s.wantShadow(s.send(), 201, middleware.Executed, 201); e.Err == nil || !strings.Contains(e.Err.Error(), "WithMaxDuration") {
		t.Errorf("Err = %v", e.Err)
	}
}

// A client that leaves ends the handler's context, as without the middleware. Its retry would have been a replay of what
// nobody knows.
func TestShadowClientLeaves(t *testing.T) {
	t.Parallel()
	g := newGate()
	s := shadow(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-g.open: // the retry
			w.WriteHeader(201)
			return
		default:
		}
		g.entered <- struct{}{}
		<-r.Context().Done()
		w.WriteHeader(500)
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := s.client.Do(s.request().WithContext(ctx))
		gone <- err
	}()
	<-g.entered
	cancel()
	if err := <-gone; err == nil {
		t.Error("the client got an answer")
	}
	if e := s.event(); e.Outcome != middleware.Executed || !e.Shadow {
		t.Errorf("%+v", e)
	}
	close(g.open)
	if e := s.wantShadow(s.send(), 201, middleware.Replayed, 500); e.Differs {
		t.Error("Differs is true of a response that is not known")
	}
}

func TestShadowExecution(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{}
	s := serveOn(t, newLocker(t, redistest.Mini(t).Client(t), lock.WithFencing()), func(w http.ResponseWriter, r *http.Request) {
		run := middleware.FromContext(r.Context())
		if keys[run.Key()] || run.Key() == "" || run.Fence() != 0 {
			t.Errorf("key %q, known %v, fence %d", run.Key(), keys[run.Key()], run.Fence())
		}
		keys[run.Key()] = true
		w.WriteHeader(201)
	}, middleware.WithShadow())
	s.wantShadow(s.send(), 201, middleware.Executed, 201)
	s.wantShadow(s.send(), 201, middleware.Replayed, 201)
	if e := s.wantShadow(s.send(key("k2")), 201, middleware.Executed, 201); keys[e.Key] || e.Key == "" {
		t.Errorf("the Event's key is %q", e.Key)
	}
}

func TestShadowNested(t *testing.T) {
	t.Parallel()
	standard := keyfunc.Standard(keyfunc.BasicUser())
	for name, test := range map[string]struct {
		outer, inner bool // in shadow
		outerKey     keyfunc.Func
		runs         int64 // of two requests
		second       middleware.Outcome
	}{
		"mounted twice":               {true, true, standard, 2, ""},
		"the outer one acts":          {false, true, standard, 1, ""},
		"the inner one acts":          {true, false, standard, 1, middleware.Replayed},
		"the outer one acts, by user": {false, true, keyfunc.Compose(keyfunc.Header("Idempotency-Key"), keyfunc.Anonymous()), 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker := newLocker(t, redistest.Mini(t).Client(t))
			var opts, outerOpts []middleware.Option
			if test.inner {
				opts = append(opts, middleware.WithShadow())
			}
			if test.outer {
				outerOpts = append(outerOpts, middleware.WithShadow())
			}
			s := serveKeyed(t, locker, standard, payOnce(), opts...)
			outer := middleware.Idempotency(locker, test.outerKey, outerOpts...)
			s.outer = func(h http.Handler) http.Handler { return outer(h) }
			s.send()
			if a := s.send(); a.status != 201 || a.replayed() == (test.runs == 2) {
				t.Errorf("%d %s", a.status, a.body)
			}
			s.wantRuns(test.runs)
			if test.second != "" {
				s.event()
				if e := s.event(); e.Outcome != test.second {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

// Inside of a run that is protected, the handler speaks to that run.
func TestShadowInsideOfARun(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	s := serveKeyed(t, locker, keyfunc.Header("Idempotency-Key"), func(w http.ResponseWriter, r *http.Request) {
		_ = middleware.FromContext(r.Context()).Discard()
		w.WriteHeader(201)
	}, middleware.WithShadow())
	outer := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))
	s.outer = func(h http.Handler) http.Handler { return outer(h) }
	for range 2 {
		if a := s.send(); a.replayed() {
			t.Error("the outer run did not hear Discard")
		}
	}
	s.wantRuns(2)
}

// What a mux below the middleware writes into the request, the middlewares around it see.
func TestShadowKeepsThePattern(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"), middleware.WithShadow())
	r := httptest.NewRequest(http.MethodPost, "/payments/7", nil)
	r.Header.Set("Idempotency-Key", "k")
	once(mux).ServeHTTP(httptest.NewRecorder(), r)
	if want := "POST /payments/{id}"; r.Pattern != want {
		t.Errorf("Pattern = %q, want %q", r.Pattern, want)
	}
}

func TestShadowWithAJournalPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "middleware.WithShadow: ") {
			t.Errorf("panic = %q", got)
		}
	}()
	middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Body(),
		middleware.WithShadow(), middleware.WithJournal(newJournal(false)))
}
