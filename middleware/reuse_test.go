package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// The memory of a request is used again for others. The tests in this file keep references that they should not keep, and
// then send other requests.

// sendOthers sends enough requests to use all memory that was freed.
func sendOthers(h http.Handler) {
	c := &counter{body: bytes.Repeat([]byte("z"), 1<<10), w: discarded{header: http.Header{}}}
	for n := range 100 {
		c.request, _ = http.NewRequestWithContext(context.Background(), http.MethodPost, "http://test/other", nil)
		c.request.Header.Set("Idempotency-Key", fmt.Sprint("other", n))
		c.serve(h)
	}
}

// protect returns a protected handler, for requests with the path /other one that reads and answers, and the function
// that sends one request to it with a body of the length given.
func protect(
	t *testing.T, store *canned, h http.HandlerFunc, opts ...middleware.Option,
) (protected http.Handler, send func(w http.ResponseWriter, length int)) {
	t.Helper()
	store.claim = []byte(absent)
	protected = middleware.Idempotency(store.inBubble(t), keyfunc.Standard(keyfunc.Anonymous()), opts...)(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/other" {
				h(w, r)
				return
			}
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Other", "z")
			_, _ = w.Write(b)
		}))
	return protected, func(w http.ResponseWriter, length int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://test/mine",
			strings.NewReader(strings.Repeat("a", length)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "mine")
		protected.ServeHTTP(w, r)
	}
}

func TestBodyIsCutOff(t *testing.T) {
	t.Parallel()
	var body io.ReadCloser
	protected, send := protect(t, new(canned), func(_ http.ResponseWriter, r *http.Request) {
		body = r.Body
		if n, err := body.Read(make([]byte, 10)); n != 10 || err != nil {
			t.Errorf("in the handler: %d, %v", n, err)
		}
	})
	send(&discarded{header: http.Header{}}, 1000)
	sendOthers(protected)
	if b, err := io.ReadAll(body); len(b) > 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("after the handler: %.20q, %v", b, err)
	}
}

// fault: the handler reads the body after its Close -> the error of net/http's own body
func TestBodyAfterClose(t *testing.T) {
	t.Parallel()
	_, send := protect(t, new(canned), func(_ http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		if b, err := io.ReadAll(r.Body); len(b) > 0 || err != http.ErrBodyReadAfterClose {
			t.Errorf("%d bytes, %v; want ErrBodyReadAfterClose", len(b), err)
		}
	})
	send(&discarded{header: http.Header{}}, 1000)
}

func TestRecorderIsCutOff(t *testing.T) {
	t.Parallel()
	var late http.ResponseWriter
	protected, send := protect(t, new(canned), func(w http.ResponseWriter, _ *http.Request) {
		late = w
		_, _ = io.WriteString(w, "mine")
	})
	w := &discarded{header: http.Header{}}
	send(w, 10)
	sendOthers(protected)
	if n, err := late.Write([]byte("late")); n > 0 || err == nil {
		t.Errorf("Write: %d, %v", n, err)
	}
	late.WriteHeader(http.StatusTeapot)
	rc := http.NewResponseController(late)
	if err := rc.Flush(); err == nil {
		t.Error("Flush: no error")
	}
	if _, _, err := rc.Hijack(); err == nil {
		t.Error("Hijack: no error")
	}
	if w.written != len("mine") || w.status != http.StatusOK {
		t.Errorf("%d bytes, status %d", w.written, w.status)
	}
}

// For the race detector: a goroutine left behind cannot change the status of a handler that set none.
func TestLateWriteHeader(t *testing.T) {
	t.Parallel()
	var left sync.WaitGroup
	_, send := protect(t, new(canned), func(w http.ResponseWriter, _ *http.Request) {
		left.Go(func() {
			for range 1000 {
				w.WriteHeader(http.StatusOK)
			}
		})
	})
	for range 20 {
		w := &discarded{header: http.Header{}}
		send(w, 10)
		left.Wait()
		if w.status != http.StatusOK {
			t.Errorf("status %d", w.status)
		}
	}
}

func TestBodyForAFingerprintIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	var kept []byte
	protected, send := protect(t, new(canned), func(http.ResponseWriter, *http.Request) {},
		middleware.WithFingerprint("mine", func(_ *http.Request, body []byte) []byte {
			if kept == nil {
				kept = body
			}
			return nil
		}))
	send(&discarded{header: http.Header{}}, 1000)
	sendOthers(protected)
	if bytes.ContainsAny(kept, "z") || len(kept) != 1000 {
		t.Errorf("kept %.20q", kept)
	}
}

// keeper is a ResponseWriter that fails, and still has the bytes then.
type keeper struct {
	discarded
	kept []byte
}

func (k *keeper) Write(p []byte) (int, error) {
	k.kept = p
	return 0, errors.New("the client has left")
}

func TestResponseOfAFailedWriteIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	protected, send := protect(t, new(canned), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("a", 1000))
	})
	w := &keeper{discarded: discarded{header: http.Header{}}}
	send(w, 10)
	sendOthers(protected)
	if bytes.ContainsAny(w.kept, "z") || len(w.kept) != 1000 {
		t.Errorf("kept %.20q", w.kept)
	}
}

// snapper is a ResponseWriter that keeps the header that it is sent, as an outer middleware may.
type snapper struct {
	discarded
	kept []string
}

func (s *snapper) WriteHeader(int) { s.kept = s.header["X-Mine"] }

func TestHeaderThatWasSeenIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	protected, send := protect(t, new(canned), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Mine", "a")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Mine", "too late")
	})
	w := &snapper{discarded: discarded{header: http.Header{}}}
	send(w, 10)
	sendOthers(protected)
	if len(w.kept) != 1 || w.kept[0] != "a" {
		t.Errorf("kept %q", w.kept)
	}
}

// A record whose Settle has failed is sent again in the background, as it was.
func TestRecordBeingStoredIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &canned{refused: 2} // an error is asked for twice
		protected, send := protect(t, store, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("a", 1000))
		})
		send(&discarded{header: http.Header{}}, 10)
		sendOthers(protected)
		time.Sleep(time.Second)
		synctest.Wait()
		const head = 28 // of what the lock stores
		r, err := new(record.Codec).Decode(string(store.key), store.settled[head:])
		if !bytes.HasSuffix(r.Body, []byte(strings.Repeat("a", 1000))) || err != nil {
			t.Errorf("settled %.200q, %v", store.settled, err)
		}
	})
}

// Handlers that leave goroutines behind, panic, and run out of time, all at once: each client gets only bytes of its own
// response.
func TestRequestsShareNoBytes(t *testing.T) {
	t.Parallel()
	var left sync.WaitGroup
	s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, r *http.Request) {
		mine := r.Header.Get("X-Mine")
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Mine", mine)
		w.WriteHeader(http.StatusCreated)
		first := make([]byte, 8)
		_, _ = io.ReadFull(r.Body, first)
		if string(first) != mine {
			t.Errorf("the handler of %s read %s", mine, first)
		}
		left.Go(func() {
			for range 200 {
				_, _ = io.WriteString(w, mine)
				w.WriteHeader(http.StatusTeapot)
				if n, _ := r.Body.Read(first); string(first[:n]) != mine[:n] {
					t.Errorf("a goroutine of %s read %s", mine, first)
				}
				runtime.Gosched()
			}
		})
		if strings.HasSuffix(mine, "7") {
			panic(http.ErrAbortHandler)
		}
		for range 20 {
			_, _ = io.WriteString(w, mine)
		}
	})
	const clients, each = 8, 60
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for n := range each {
				mine := fmt.Sprintf("%03d-%04d", client, n)
				for range 2 { // it runs, and is replayed
					text := body("text/plain", strings.Repeat(mine, 100))
					a, err := s.try(s.request(key(mine), text, header("X-Mine", mine), noRetry))
					<-s.events
					if strings.HasSuffix(mine, "7") {
						continue
					}
					if err != nil || a.header.Get("X-Mine") != mine || strings.Trim(a.body, mine) != "" ||
						len(a.body) < 20*len(mine) || a.body != strings.Repeat(mine, len(a.body)/len(mine)) {
						t.Errorf("%s got %v, %s, %.40q", mine, err, a.header.Get("X-Mine"), a.body)
					}
				}
			}
		})
	}
	all.Wait()
	left.Wait()
}

// hanging is a writer one of whose Writes takes until the client reads.
type hanging struct {
	discarded
	at             int // which one, from 1
	writes         int
	entered, reads chan struct{}
}

func (w *hanging) Flush() {}

func (w *hanging) Write(p []byte) (int, error) {
	if w.writes++; w.writes == w.at {
		close(w.entered)
		<-w.reads
	}
	return len(p), nil
}

// The key is settled though a goroutine that the handler has left behind is stuck in a Write, and however the handler
// has ended. What that holds is nobody else's afterwards.
func TestSettledThoughAWriteHangs(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){
		"return": func() {},
		"panic":  func() { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &hanging{
					discarded: discarded{header: http.Header{}}, at: 2, entered: make(chan struct{}), reads: make(chan struct{}),
				}
				store, left := new(canned), make(chan error)
				protected, send := protect(t, store, func(w2 http.ResponseWriter, _ *http.Request) {
					_, _ = w2.Write([]byte("begun"))
					w2.(http.Flusher).Flush()
					go func() {
						_, _ = w2.Write([]byte("stuck"))
						_, err := w2.Write([]byte("late"))
						left <- err
					}()
					<-w.entered
					end()
				})
				returned := inBubble(send, w)
				synctest.Wait()
				if len(store.settled) == 0 {
					t.Error("nothing is settled")
				}
				sendOthers(protected)
				close(w.reads)
				if err := <-left; err == nil {
					t.Error("a Write after the end: no error")
				}
				if !returned() {
					t.Error("ServeHTTP does not return")
				}
			})
		})
	}
}

// A body that is too long to be kept is not stored as far as it was kept, though its client reads nothing.
func TestOverflowWhileAWriteHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &hanging{
			discarded: discarded{header: http.Header{}}, at: 1, entered: make(chan struct{}), reads: make(chan struct{}),
		}
		store, left := new(canned), make(chan struct{})
		_, send := protect(t, store, func(w2 http.ResponseWriter, _ *http.Request) {
			_, _ = w2.Write([]byte("begun"))
			go func() {
				defer close(left)
				_, _ = w2.Write(make([]byte, 2<<20))
			}()
			<-w.entered
		})
		returned := inBubble(send, w)
		synctest.Wait()
		if len(store.settled) == 0 || bytes.Contains(store.settled, []byte("begun")) {
			t.Errorf("settled with %q", store.settled)
		}
		close(w.reads)
		<-left
		if !returned() {
			t.Error("ServeHTTP does not return")
		}
	})
}
