package middleware_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// A handler may leave a goroutine behind that is in a method of the ResponseWriter for as long as the client reads
// nothing. In the tests in this file it is.

// stuck is a writer one of whose methods takes until the client reads.
type stuck struct {
	header         http.Header
	at             string // the call that does, as it stands in calls
	entered, reads chan struct{}
	within         func() // called there

	mu    sync.Mutex
	calls []string
	sent  http.Header // with the status
	conn  net.Conn    // the client's end, after Hijack
}

func newStuck(at string) *stuck {
	return &stuck{header: http.Header{}, at: at, entered: make(chan struct{}), reads: make(chan struct{}), within: func() {}}
}

func (w *stuck) call(format string, args ...any) {
	call := fmt.Sprintf(format, args...)
	w.mu.Lock()
	w.calls = append(w.calls, call)
	w.mu.Unlock()
	if call == w.at {
		close(w.entered)
		w.within()
		<-w.reads
	}
}

func (w *stuck) Header() http.Header { return w.header }

func (w *stuck) WriteHeader(status int) {
	if status >= 200 {
		w.sent = w.header.Clone()
	}
	w.call("WriteHeader %d", status)
}

func (w *stuck) Write(p []byte) (int, error) {
	w.call("Write %s", p)
	return len(p), nil
}

func (w *stuck) Flush() { w.call("Flush") }

func (w *stuck) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.call("Hijack")
	server, client := net.Pipe()
	w.conn = client
	_ = client.SetReadDeadline(time.Now().Add(time.Second))
	return server, nil, nil
}

// body returns what was written of a body.
func (w *stuck) body() (body string) {
	for _, call := range w.calls {
		if text, ok := strings.CutPrefix(call, "Write "); ok {
			body += text
		}
	}
	return body
}

// trailer returns what stands in the header as trailers are taken from it.
func (w *stuck) trailer() http.Header {
	trailer := maps.Clone(w.header)
	maps.DeleteFunc(trailer, func(name string, _ []string) bool {
		return !slices.Contains(w.sent["Trailer"], name) && !strings.HasPrefix(name, http.TrailerPrefix)
	})
	return trailer
}

// inBubble sends a request there. The function that it returns tells whether ServeHTTP has returned, or panicked.
func inBubble(send func(w http.ResponseWriter, length int), w http.ResponseWriter) (returned func() bool) {
	done := false
	go func() {
		defer func() { _, done = recover(), true }()
		send(w, 10)
	}()
	return func() bool {
		synctest.Wait()
		return done
	}
}

func flushIt(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }

// While the call hangs, the key is settled, and ServeHTTP does not return, since net/http then uses the writer's memory and
// connection for others. After the call, only the rest of the response is written, and nothing by that goroutine.
func TestCallThatHangs(t *testing.T) {
	t.Parallel()
	begin := func(w http.ResponseWriter) { _, _ = io.WriteString(w, "begun ") }
	for name, test := range map[string]struct {
		at     string
		before func(http.ResponseWriter)       // in the handler
		left   func(http.ResponseWriter) error // in the goroutine that it leaves behind
		calls  []string
		owed   []string // these calls are made too, after at, unless the handler panics
	}{
		"hint": {
			at: "WriteHeader 103", before: func(http.ResponseWriter) {},
			left:  func(w http.ResponseWriter) error { w.WriteHeader(http.StatusEarlyHints); return nil },
			calls: []string{"WriteHeader 103"}, owed: []string{"WriteHeader 200"},
		},
		"status": {
			at: "WriteHeader 200", before: begin, left: flushIt,
			calls: []string{"WriteHeader 200"}, owed: []string{"Write begun "},
		},
		"body": {
			at: "Write begun ", before: begin, left: flushIt,
			calls: []string{"WriteHeader 200", "Write begun "},
		},
		"flush": {
			at: "Flush", before: begin, left: flushIt,
			calls: []string{"WriteHeader 200", "Write begun ", "Flush"},
		},
		"write": {
			at: "Write more", before: func(w http.ResponseWriter) { begin(w); _ = flushIt(w) },
			left:  func(w http.ResponseWriter) error { _, err := io.WriteString(w, "more"); return err },
			calls: []string{"WriteHeader 200", "Write begun ", "Flush", "Write more"},
		},
		"overflow": {
			at: "Write begun ", before: begin,
			left:  func(w http.ResponseWriter) error { _, err := io.WriteString(w, strings.Repeat("a", 20)); return err },
			calls: []string{"WriteHeader 200", "Write begun "},
		},
		"write after an overflow": {
			at: "Write more", before: func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat("a", 20)) },
			left:  func(w http.ResponseWriter) error { _, err := io.WriteString(w, "more"); return err },
			calls: []string{"WriteHeader 200", "Write " + strings.Repeat("a", 20), "Write more"},
		},
		"status before a hijack": {
			at: "WriteHeader 200", before: begin,
			left: func(w http.ResponseWriter) error {
				_, _, err := http.NewResponseController(w).Hijack()
				return err
			},
			calls: []string{"WriteHeader 200"}, owed: []string{"Write begun "},
		},
		"hijack": {
			at: "Hijack", before: begin,
			left: func(w http.ResponseWriter) error {
				_, _, err := http.NewResponseController(w).Hijack()
				return err
			},
			calls: []string{"WriteHeader 200", "Write begun ", "Hijack"},
		},
	} {
		for _, end := range []string{"return", "panic"} {
			t.Run(name+"/"+end, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w, store := newStuck(test.at), new(canned)
					var errs []error
					_, send := protect(t, store, func(rec http.ResponseWriter, _ *http.Request) {
						test.before(rec)
						go func() {
							err := test.left(rec)
							_, late := io.WriteString(rec, "late")
							rec.WriteHeader(http.StatusTeapot)
							errs = []error{err, late, flushIt(rec)}
						}()
						<-w.entered
						if end == "panic" {
							panic(http.ErrAbortHandler)
						}
					}, middleware.WithMaxResponse(10))
					returned := inBubble(send, w)
					if got := returned(); got != (end == "panic") {
						t.Errorf("ServeHTTP has returned: %v", got)
					}
					want := test.calls
					if end == "return" {
						if len(store.settled) == 0 {
							t.Error("nothing is settled")
						}
						want = append(slices.Clip(want), test.owed...)
					}
					close(w.reads)
					if !returned() {
						t.Error("ServeHTTP does not return")
					}
					if !slices.Equal(w.calls, want) {
						t.Errorf("calls %q, want %q", w.calls, want)
					}
					if len(errs) != 3 || errs[0] == nil && name != "hint" || errs[1] == nil || errs[2] == nil {
						t.Errorf("the goroutine got %v, want an error for each", errs)
					}
					if w.conn != nil {
						if _, err := w.conn.Read(make([]byte, 1)); err != io.EOF {
							t.Errorf("a connection that nobody was given: %v, want it closed", err)
						}
					}
				})
			})
		}
	}
}

// A goroutine that comes back while a panic goes on does not call the writer again, though the key is not settled yet.
func TestCallThatComesBackInAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, store, left := newStuck("WriteHeader 200"), new(canned), make(chan struct{})
		store.settling = func() {
			close(w.reads)
			<-left
		}
		_, send := protect(t, store, func(rec http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rec, "begun")
			go func() {
				defer close(left)
				_ = flushIt(rec)
			}()
			<-w.entered
			panic(http.ErrAbortHandler)
		})
		returned := inBubble(send, w)
		if want := []string{"WriteHeader 200"}; !returned() || len(store.settled) == 0 || !slices.Equal(w.calls, want) {
			t.Errorf("settled %q, calls %q, want %q", store.settled, w.calls, want)
		}
	})
}

// As long as the handler runs, a call waits for one that hangs.
func TestCallsBehindOneThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newStuck("WriteHeader 200")
		_, send := protect(t, new(canned), func(rec http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rec, "begun")
			go func() { _ = flushIt(rec) }()
			<-w.entered
			_, _ = io.WriteString(rec, "more")
		})
		returned := inBubble(send, w)
		if want := []string{"WriteHeader 200"}; returned() || !slices.Equal(w.calls, want) {
			t.Errorf("calls %q, want %q", w.calls, want)
		}
		close(w.reads)
		if want := []string{"WriteHeader 200", "Write begun", "Flush", "Write more"}; !returned() || !slices.Equal(w.calls, want) {
			t.Errorf("calls %q, want %q", w.calls, want)
		}
	})
}

// What is stored is what is sent, whichever goroutine began to send it: the header as it was with
// the status, the trailers as they were at the end.
func TestStoredWhileItIsSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(http.Header){
		"header as it was": func(http.Header) {},
		"header changed":   func(h http.Header) { h.Set("X-Mine", "too late") },
		"trailers": func(h http.Header) {
			h.Set("X-Sum", "abc")
			h.Set(http.TrailerPrefix+"X-Late", "b")
			h.Set("X-Mine", "too late")
		},
	} {
		for _, at := range []string{"WriteHeader 201", "Write begun", "Flush"} {
			t.Run(name+"/"+at, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					first, store := newStuck(at), new(canned)
					_, send := protect(t, store, func(rec http.ResponseWriter, _ *http.Request) {
						rec.Header().Set("Trailer", "X-Sum")
						rec.Header().Set("X-Sum", "not yet")
						rec.Header().Set("X-Mine", "a")
						rec.WriteHeader(http.StatusCreated)
						_, _ = io.WriteString(rec, "begun")
						change(rec.Header())
						go func() { _ = flushIt(rec) }()
						<-first.entered
					})
					returned := inBubble(send, first)
					synctest.Wait()
					store.claim = bulk(store.settled)
					close(first.reads)
					if !returned() {
						t.Fatal("ServeHTTP does not return")
					}
					again := newStuck("")
					send(again, 10)
					if again.sent.Get("Idempotent-Replayed") != "true" {
						t.Fatalf("%q %q, want a replay", again.calls, again.sent)
					}
					if first.body() != again.body() || first.body() != "begun" {
						t.Errorf("body %q, replayed %q", first.body(), again.body())
					}
					for _, header := range []string{"X-Mine", "X-Sum"} {
						if a, b := first.sent[header], again.sent[header]; !slices.Equal(a, b) || len(a) != 1 {
							t.Errorf("%s: %q, replayed %q", header, a, b)
						}
					}
					if a, b := first.trailer(), again.trailer(); !maps.EqualFunc(a, b, slices.Equal) || len(a) == 0 {
						t.Errorf("trailers %q, replayed %q", a, b)
					}
				})
			})
		}
	}
}

// For the race detector: an outer writer may change the header when it gets the status, as one that compresses does.
func TestHeaderIsNotReadWhileItIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, store := newStuck("WriteHeader 200"), new(canned)
		w.within = func() { w.header.Set("Content-Encoding", "gzip") }
		_, send := protect(t, store, func(rec http.ResponseWriter, _ *http.Request) {
			rec.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(rec, "begun")
			go func() { _ = flushIt(rec) }()
			<-w.entered
		})
		returned := inBubble(send, w)
		if synctest.Wait(); len(store.settled) == 0 {
			t.Error("nothing is settled")
		}
		close(w.reads)
		if !returned() {
			t.Error("ServeHTTP does not return")
		}
	})
}

// The 504 for silence comes after what a goroutine left behind is sending, and after the key was left to run out.
func TestSilenceWhileAHintHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, store := newStuck("WriteHeader 103"), new(canned)
		var said error
		_, send := protect(t, store, func(rec http.ResponseWriter, r *http.Request) {
			go rec.WriteHeader(http.StatusEarlyHints)
			<-w.entered
			middleware.FromContext(r.Context()).Keep()
			<-r.Context().Done()
			said = r.Context().Err()
		}, middleware.WithMaxDuration(time.Second))
		returned := inBubble(send, w)
		time.Sleep(2 * time.Second)
		if returned() || len(store.settled) == 0 || said == nil {
			t.Errorf("returned %v, settled %q, context %v", returned(), store.settled, said)
		}
		close(w.reads)
		if want := []string{"WriteHeader 103", "WriteHeader 504"}; !returned() || !slices.Equal(w.calls, want) {
			t.Errorf("returned %v, calls %q, want %q", returned(), w.calls, want)
		}
	})
}
