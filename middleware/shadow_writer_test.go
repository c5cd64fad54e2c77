package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// plainWriter has the methods of http.ResponseWriter alone.
type plainWriter struct{ http.ResponseWriter }

type (
	canFlush  struct{}
	canHijack struct{}
	canPush   struct{}
	canNotify struct{}
)

func (canFlush) Flush() {}
func (canHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.New("no connection")
}
func (canPush) Push(string, *http.PushOptions) error { return nil }
func (canNotify) CloseNotify() <-chan bool           { return nil }

// optionalMethods returns what a handler finds by type assertions.
func optionalMethods(w http.ResponseWriter) (set [4]bool) {
	_, set[0] = w.(http.Flusher)
	_, set[1] = w.(http.Hijacker)
	_, set[2] = w.(http.Pusher)
	_, set[3] = w.(interface{ CloseNotify() <-chan bool })
	return set
}

// A handler's type assertions on the ResponseWriter have the results that they have without the middleware, also where
// the response is stored or compared.
func TestShadowWriterHasTheMethodsOfTheOriginal(t *testing.T) {
	t.Parallel()
	type rw = http.ResponseWriter
	plain := plainWriter{httptest.NewRecorder()}
	writers := []rw{
		plain,
		struct {
			rw
			canFlush
		}{plain, canFlush{}},
		struct {
			rw
			canHijack
		}{plain, canHijack{}},
		struct {
			rw
			canPush
		}{plain, canPush{}},
		struct {
			rw
			canNotify
		}{plain, canNotify{}},
		struct {
			rw
			canFlush
			canHijack
		}{plain, canFlush{}, canHijack{}},
		struct {
			rw
			canFlush
			canPush
		}{plain, canFlush{}, canPush{}},
		struct {
			rw
			canFlush
			canNotify
		}{plain, canFlush{}, canNotify{}},
		struct {
			rw
			canHijack
			canPush
		}{plain, canHijack{}, canPush{}},
		struct {
			rw
			canHijack
			canNotify
		}{plain, canHijack{}, canNotify{}},
		struct {
			rw
			canPush
			canNotify
		}{plain, canPush{}, canNotify{}},
		struct {
			rw
			canFlush
			canHijack
			canPush
		}{plain, canFlush{}, canHijack{}, canPush{}},
		struct {
			rw
			canFlush
			canHijack
			canNotify
		}{plain, canFlush{}, canHijack{}, canNotify{}},
		struct {
			rw
			canFlush
			canPush
			canNotify
		}{plain, canFlush{}, canPush{}, canNotify{}},
		struct {
			rw
			canHijack
			canPush
			canNotify
		}{plain, canHijack{}, canPush{}, canNotify{}},
		struct {
			rw
			canFlush
			canHijack
			canPush
			canNotify
		}{plain, canFlush{}, canHijack{}, canPush{}, canNotify{}},
	}
	var got [4]bool
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"), middleware.WithShadow())
	handler := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = optionalMethods(w) }))
	seen := map[[4]bool]bool{}
	for i, w := range writers {
		want := optionalMethods(w)
		seen[want] = true
		for _, try := range []string{"first", "duplicate"} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", fmt.Sprint(i))
			handler.ServeHTTP(w, r)
			if got != want {
				t.Errorf("%s: the handler finds %v, and without the middleware %v", try, got, want)
			}
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d sets of methods tried", len(seen))
	}
}

// On net/http's own writers the methods do what they do without the middleware: what is flushed is there at once.
func TestShadowFlushes(t *testing.T) {
	t.Parallel()
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"Flusher":    func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil },
		"controller": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(chan struct{}, 1)
			s := shadow(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "one ")
				if err := flush(w); err != nil {
					t.Error(err)
				}
				<-seen
				_, _ = io.WriteString(w, "two")
			})
			for _, want := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
				resp, err := s.client.Do(s.request())
				if err != nil {
					t.Fatal(err)
				}
				one := make([]byte, 4)
				if _, err := io.ReadFull(resp.Body, one); err != nil || string(one) != "one " {
					t.Errorf("%q, %v", one, err)
				}
				seen <- struct{}{}
				if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "two" {
					t.Errorf("%q, %v", rest, err)
				}
				resp.Body.Close()
				if e := s.event(); e.Outcome != want || e.Differs {
					t.Errorf("%+v, want %s", e, want)
				}
			}
		})
	}
}

func TestShadowHijack(t *testing.T) {
	t.Parallel()
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"Hijacker": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shadow(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, buf, err := hijack(w)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = buf.WriteString("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				_ = buf.Flush()
			})
			for _, want := range []middleware.Outcome{middleware.NotStored, middleware.NotReplayable} {
				if a := s.send(); a.status != 202 {
					t.Errorf("got %d", a.status)
				}
				if e := s.event(); e.Outcome != want || !e.Shadow {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

func TestShadowController(t *testing.T) {
	t.Parallel()
	s := shadow(t, func(w http.ResponseWriter, _ *http.Request) {
		controller := http.NewResponseController(w)
		for name, err := range map[string]error{
			"SetReadDeadline":  controller.SetReadDeadline(time.Now().Add(time.Hour)),
			"SetWriteDeadline": controller.SetWriteDeadline(time.Now().Add(time.Hour)),
			"EnableFullDuplex": controller.EnableFullDuplex(),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "done")
		w.Header().Set("X-Sum", "4")
	})
	a := s.send()
	s.wantShadow(a, 201, middleware.Executed, 201)
	if a.body != "done" || a.trailer.Get("X-Sum") != "4" {
		t.Errorf("%q, trailer %v", a.body, a.trailer)
	}
}

// What could not be stored without shadow is told: a body that is too short, and a handler that answered on another
// writer. The client gets what it gets without the middleware.
func TestShadowBrokenResponses(t *testing.T) {
	t.Parallel()
	s := shadow(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "short")
	})
	if a, err := s.try(s.request()); err == nil {
		t.Errorf("got %+v", a)
	}
	if e := s.event(); e.Outcome != middleware.Unknown || e.Err == nil {
		t.Errorf("%+v", e)
	}

	var around http.ResponseWriter
	s = shadow(t, func(http.ResponseWriter, *http.Request) {
		around.WriteHeader(201)
	})
	s.outer = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			around = &writtenWriter{ResponseWriter: w}
			h.ServeHTTP(around, r)
		})
	}
	if a, e := s.send(), s.event(); a.status != 201 || e.Outcome != middleware.NotStored || e.Err == nil {
		t.Errorf("%d, %+v", a.status, e)
	}
}

// writtenWriter says whether it was written to, as gin's writer does.
type writtenWriter struct {
	http.ResponseWriter
	written bool
}

func (w *writtenWriter) Written() bool { return w.written }

func (w *writtenWriter) WriteHeader(status int) {
	w.written = true
	w.ResponseWriter.WriteHeader(status)
}

// A goroutine that the handler leaves behind may write while the run is settled.
func TestShadowGoroutineLeftBehind(t *testing.T) {
	t.Parallel()
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"), middleware.WithShadow(),
		middleware.WithObserver(func(context.Context, middleware.Event) {}))
	done := make(chan struct{})
	handler := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		go func() {
			defer close(done)
			for range 100 {
				_, _ = w.Write([]byte("x"))
				_, _ = r.Body.Read(make([]byte, 1))
			}
		}()
	}))
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	handler.ServeHTTP(&discarded{header: http.Header{}}, r)
	<-done
}
