package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// conformance: 15, 16
func TestReplay(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce())
		first := s.send()
		e := s.want(first, http.StatusCreated, middleware.Executed)
		if e.Status != http.StatusCreated || e.Err != nil || e.Claim.Duration <= 0 || e.Handler.Duration <= 0 {
			t.Errorf("event %+v, want the status, no error and its phases", e)
		}
		if _, said := first.header["Idempotent-Replayed"]; said {
			t.Error("the first response says Idempotent-Replayed")
		}
		for range 2 {
			again := s.send()
			e := s.want(again, http.StatusCreated, middleware.Replayed)
			if again.body != first.body || !again.replayed() {
				t.Errorf("replay %+v, want %+v", again, first)
			}
			if keys := b.Keys(t); !slices.Equal(keys, []string{e.Key}) {
				t.Errorf("keys %q, want the event's %q alone", keys, e.Key)
			}
		}
		s.wantRuns(1)
	})
}

// conformance: 17, 18
func TestReplayIsTheSameResponse(t *testing.T) {
	t.Parallel()
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	for name, h := range map[string]http.HandlerFunc{
		"binary":         func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(binary) },
		"nothing at all": func(http.ResponseWriter, *http.Request) {},
		"empty":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
		"no content":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/orders/7", http.StatusSeeOther) },
		"many values": func(w http.ResponseWriter, _ *http.Request) {
			for _, v := range []string{"<a>; rel=x", "<b>; rel=y", "<a>; rel=x"} {
				w.Header().Add("Link", v)
			}
			w.Header().Set("ETag", `"v1"`)
			w.Header()["x-odd-case"] = []string{"kept"}
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<html>")
		},
		"sniffed": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"in pieces": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 100_000)))
		},
		"custom status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) },
		"client error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no such currency", http.StatusUnprocessableEntity)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, redistest.Mini(t), h)
			first, again := s.send(), s.send()
			s.wantRuns(1)
			if !again.replayed() {
				t.Fatal("not a replay")
			}
			if first.status != again.status || first.body != again.body {
				t.Errorf("replay %d %q, want %d %q", again.status, again.body, first.status, first.body)
			}
			for _, h := range []http.Header{first.header, again.header} {
				for _, added := range []string{"Date", "Content-Length", "Idempotent-Replayed"} {
					h.Del(added)
				}
			}
			for _, name := range append(keysOf(first.header), keysOf(again.header)...) {
				if !slices.Equal(first.header[name], again.header[name]) {
					t.Errorf("%s: %q on the replay, want %q", name, again.header[name], first.header[name])
				}
			}
		})
	}
}

func keysOf(h http.Header) (names []string) {
	for name := range h {
		names = append(names, name)
	}
	return names
}

// conformance: 19
func TestWhichResponsesAreStored(t *testing.T) {
	t.Parallel()
	all := []int{200, 201, 204, 299, 303, 304, 400, 402, 409, 410, 411, 413, 414, 416, 417, 422, 424, 426, 431, 451, 499,
		401, 403, 404, 405, 408, 412, 415, 423, 425, 428, 429, 500, 501, 502, 503, 504, 599}
	freed := all[slices.Index(all, 401):]
	for name, test := range map[string]struct {
		opts  []middleware.Option
		freed []int
	}{
		"default":    {nil, freed},
		"all":        {[]middleware.Option{middleware.WithStored(middleware.StoreAll)}, nil},
		"no success": {[]middleware.Option{middleware.WithStored(func(s int) bool { return s >= 300 })}, []int{200, 201, 204, 299}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, status := range all {
				b := redistest.Mini(t)
				s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }, test.opts...)
				if slices.Contains(test.freed, status) {
					s.want(s.send(), status, middleware.Freed)
					if keys := b.Keys(t); len(keys) > 0 {
						t.Errorf("%d: left: %q", status, keys)
					}
					s.want(s.send(), status, middleware.Freed)
				} else {
					s.want(s.send(), status, middleware.Executed)
					s.want(s.send(), status, middleware.Replayed)
				}
			}
		})
	}
}

// conformance: 21
func TestRetention(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce(), middleware.WithRetention(time.Hour))
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		b.Elapse(t, 30*time.Minute)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		b.Elapse(t, 30*time.Minute)
		s.want(s.send(), http.StatusCreated, middleware.Executed)
	})
}

// conformance: 21
func TestRetentionCountsFromCompletion(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		locker := newLocker(t, b.Client(t), lock.WithTTL(time.Hour))
		s := serveOn(t, locker, func(http.ResponseWriter, *http.Request) { g.pass() }, middleware.WithRetention(time.Hour))
		done := s.inBackground(g)
		b.Elapse(t, 30*time.Minute) // of the lease
		close(g.open)
		<-done
		b.Elapse(t, 45*time.Minute)
		if a := s.send(); !a.replayed() {
			t.Error("the response is gone before its retention is over")
		}
	})
}

// conformance: 22
func TestClientGone(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		entered, gone, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-finish
			if err := r.Context().Err(); err != nil {
				t.Errorf("the client's leaving ended the run: %v", err)
			}
			payOnce()(w, r)
		})
		s.outer = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				context.AfterFunc(r.Context(), func() { gone <- struct{}{} })
				next.ServeHTTP(w, r)
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		r := s.request().WithContext(ctx)
		go func() {
			_, err := s.try(r)
			failed <- err
		}()
		<-entered
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("the client got %v, want its own cancellation", err)
		}
		<-gone // net/http has noticed
		close(finish)
		if e := s.event(); e.Outcome != middleware.Executed || e.Err != nil {
			t.Errorf("%+v, want executed", e)
		}
		go func() { <-gone }() // the retry's context ends as well
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.wantRuns(1)
	})
}

// conformance: 23
func TestPanic(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for _, value := range []any{"a text", errors.New("an error"), http.ErrAbortHandler} {
			b.FlushAll(t)
			s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Half", "done")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "half")
				panic(value)
			})
			s.outer = func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						if got := recover(); got != nil {
							if got != value {
								t.Errorf("panic value %v, want %v", got, value)
							}
							http.Error(w, "recovered", http.StatusInternalServerError)
						}
					}()
					next.ServeHTTP(w, r)
				})
			}
			a := s.send()
			s.want(a, http.StatusInternalServerError, middleware.Panicked)
			if a.body != "recovered\n" || a.header.Get("X-Half") != "" {
				t.Errorf("something of the half response is left: %+v", a)
			}
			s.want(s.send(), http.StatusConflict, middleware.InFlight)
			s.wantRuns(1)
			b.Elapse(t, 10*time.Second) // the lease runs out
			s.want(s.send(), http.StatusInternalServerError, middleware.Panicked)
			s.wantRuns(2)
		}
	})
}

// conformance: 23
func TestGoexit(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	s := serve(t, b, func(http.ResponseWriter, *http.Request) { runtime.Goexit() })
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			returned := make(chan bool, 1)
			go func() {
				answered := false
				defer func() { returned <- answered }()
				next.ServeHTTP(w, r)
				answered = true
			}()
			if !<-returned {
				w.WriteHeader(http.StatusTeapot)
			}
		})
	}
	s.want(s.send(), http.StatusTeapot, middleware.Panicked)
	s.want(s.send(), http.StatusConflict, middleware.InFlight)
}

// conformance: 37, 38
func TestHopByHopAndPerResponseHeaders(t *testing.T) {
	t.Parallel()
	names := []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Upgrade", "X-Listed", "Age"}
	s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range names {
			w.Header().Set(name, "first")
		}
		w.Header().Set("Connection", "x-listed, close")
		w.Header().Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
		w.Header().Set("X-Kept", "kept")
		_, _ = io.WriteString(w, "body")
	})
	first, again := s.send(), s.send()
	if first.header.Get("X-Listed") == "" || first.header.Get("Date") != "Thu, 01 Jan 1970 00:00:00 GMT" {
		t.Errorf("the first response is not the handler's: %v", first.header)
	}
	if !again.replayed() || again.header.Get("X-Kept") != "kept" {
		t.Fatalf("not a replay: %+v", again)
	}
	for _, name := range names {
		if got, ok := again.header[name]; ok {
			t.Errorf("%s: %q is on the replay", name, got)
		}
	}
	if date, err := http.ParseTime(again.header.Get("Date")); err != nil || time.Since(date) > time.Hour {
		t.Errorf("Date %q, want a fresh one", again.header.Get("Date"))
	}
	if got := again.header.Get("Content-Length"); got != "4" {
		t.Errorf("Content-Length %q, want 4", got)
	}
}

// conformance: 38
func TestContentLengthOfReplays(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{200: "0", 204: "", 304: ""} {
		s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		s.send()
		if again := s.send(); !again.replayed() || again.header.Get("Content-Length") != want {
			t.Errorf("%d: Content-Length %q, want %q", status, again.header.Get("Content-Length"), want)
		}
	}
}

// conformance: 39
func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	hinted := make(chan struct{})
	s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		<-hinted // goes on when the client has them
		w.Header().Del("Link")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	})
	hints := 0
	traced := func() edit {
		return func(r *http.Request) {
			*r = *r.WithContext(traceHints(r.Context(), func(status int, link string) {
				hints++
				if status != http.StatusEarlyHints || link != "</style.css>; rel=preload" {
					t.Errorf("hint %d, %q", status, link)
				}
				close(hinted)
			}))
		}
	}
	a := s.send(traced())
	s.want(a, http.StatusCreated, middleware.Executed)
	if a.header.Get("Link") != "" {
		t.Error("the hint's header is on the response")
	}
	a = s.send(traced())
	s.want(a, http.StatusCreated, middleware.Replayed)
	if hints != 1 || a.header.Get("Link") != "" || a.body != "done" {
		t.Errorf("%d hints, replay %+v; want one, and the final response", hints, a)
	}
}

// conformance: 40
func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, announced := range []bool{true, false} {
		s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
			if announced {
				w.Header().Set("Trailer", "X-Announced")
			}
			_, _ = io.WriteString(w, "body")
			if !announced {
				w.(http.Flusher).Flush() // makes it chunked
			}
			w.Header().Set("X-Announced", "a")
			w.Header().Set(http.TrailerPrefix+"X-Late", "b")
			w.Header().Set("X-Too-Late", "c")
		})
		want := map[bool]string{true: "map[X-Announced:[a] X-Late:[b]]", false: "map[X-Late:[b]]"}[announced]
		for _, replayed := range []bool{false, true} {
			a := s.send()
			if a.replayed() != replayed || a.body != "body" {
				t.Errorf("%+v, want body, replayed %v", a, replayed)
			}
			if got := fmt.Sprint(a.trailer); got != want {
				t.Errorf("replayed %v: trailers %s, want %s", replayed, got, want)
			}
			if a.header.Get("X-Too-Late") != "" {
				t.Error("a header that was set after the body is there")
			}
		}
	}
}

// conformance: 41
func TestOuterHeadersAreTodays(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Vary", "Accept")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Del("X-Powered-By")
		w.Header().Set("Access-Control-Allow-Origin", w.Header().Get("Access-Control-Allow-Origin"))
	})
	today := "monday"
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", today)
			w.Header().Set("Access-Control-Allow-Origin", "https://"+today+".example")
			w.Header().Set("Vary", "Origin")
			w.Header().Set("Cache-Control", "public")
			w.Header().Set("X-Powered-By", today)
			next.ServeHTTP(w, r)
		})
	}
	for _, today = range []string{"monday", "tuesday"} {
		a := s.send()
		if a.replayed() != (today == "tuesday") {
			t.Fatalf("%s: replayed %v", today, a.replayed())
		}
		want := http.Header{
			"X-Request-Id":                {today},
			"Access-Control-Allow-Origin": {"https://" + today + ".example"},
			"Vary":                        {"Origin", "Accept"},
			"Cache-Control":               {"no-store"},
			"X-Powered-By":                nil,
		}
		for name := range want {
			if !slices.Equal(a.header[name], want[name]) {
				t.Errorf("%s: %s: %q, want %q", today, name, a.header[name], want[name])
			}
		}
	}
}

// conformance: 40, 41
func TestOuterTrailersAreTodays(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Day", "the handler's")
	})
	today := "monday"
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Announced, X-Day")
			w.Header().Set("X-Announced", today)
			w.Header().Set("X-Day", today)
			w.Header().Set(http.TrailerPrefix+"X-Request-Id", today)
			next.ServeHTTP(w, r)
		})
	}
	for _, today = range []string{"monday", "tuesday"} {
		a := s.send()
		if a.replayed() != (today == "tuesday") {
			t.Fatalf("%s: replayed %v", today, a.replayed())
		}
		want := http.Header{"X-Announced": {today}, "X-Request-Id": {today}, "X-Day": {"the handler's"}}
		if !maps.EqualFunc(a.trailer, want, slices.Equal) {
			t.Errorf("%s: trailers %q, want %q", today, a.trailer, want)
		}
	}
}

// conformance: 42
func TestCookies(t *testing.T) {
	t.Parallel()
	h := func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "secret"})
		w.Header().Set("X-Kept", "kept")
	}
	s := serve(t, redistest.Mini(t), h)
	first, again := s.send(), s.send()
	s.want(first, http.StatusOK, middleware.CookiesDropped)
	s.want(again, http.StatusOK, middleware.Replayed)
	if first.header.Get("Set-Cookie") == "" || again.header.Get("Set-Cookie") != "" || again.header.Get("X-Kept") == "" {
		t.Errorf("first %v, replay %v; want the cookie on the first alone", first.header, again.header)
	}

	s = serve(t, redistest.Mini(t), h, middleware.WithCookies())
	first, again = s.send(), s.send()
	s.want(first, http.StatusOK, middleware.Executed)
	if !again.replayed() || again.header.Get("Set-Cookie") != first.header.Get("Set-Cookie") {
		t.Errorf("WithCookies: replay %v, want the cookie", again.header)
	}
}

// conformance: 28
func TestLeaseLost(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for _, theirs := range []string{"claim", "value"} {
			b.FlushAll(t)
			rival := newLocker(t, b.Client(t))
			g := newGate()
			keys := make(chan string, 1)
			locker := newLocker(t, b.Client(t), lock.WithTTL(3*time.Second))
			var lockKey string
			s := serveKeyed(t, locker, func(*http.Request) (string, error) { return lockKey, nil },
				func(w http.ResponseWriter, r *http.Request) {
					keys <- middleware.FromContext(r.Context()).Key()
					g.pass()
					<-r.Context().Done()
					if got := context.Cause(r.Context()); !errors.Is(got, lock.ErrLost) {
						t.Errorf("cause %v, want ErrLost", got)
					}
					_, _ = io.WriteString(w, "late")
				})
			lockKey = "k"
			done := s.inBackground(g)
			storageKey := <-keys
			b.FlushAll(t)
			lease, ok, err := rival.TryAcquire(t.Context(), "k")
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if theirs == "value" {
				if err := lease.Settle(t.Context(), []byte("theirs"), time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			before, _ := b.Raw(t, storageKey)
			close(g.open)
			a := <-done // what is there is no middleware's
			e := s.wantRefused(a, http.StatusInternalServerError, middleware.LeaseLost, "record-unreadable")
			if !errors.Is(e.Err, lock.ErrLost) {
				t.Errorf("%+v, want ErrLost", e)
			}
			if after, _ := b.Raw(t, storageKey); after != before {
				t.Errorf("another's %s was overwritten", theirs)
			}
		}
	})
}
