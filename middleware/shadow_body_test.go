package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// Goroutines of the handler may read the body at the same time, as with gin's Context.Copy. Each byte is returned once,
// also where a part of the body was read in advance, and by a key function.
//
// fault: the handler reads its body in several goroutines, in shadow.
func TestShadowBodyIsReadByGoroutines(t *testing.T) {
	t.Parallel()
	const length = 1 << 20
	for name, test := range map[string]struct {
		key   keyfunc.Func
		limit int64
	}{
		"read in advance":            {keyfunc.Header("Idempotency-Key"), length},
		"a part of it":               {keyfunc.Header("Idempotency-Key"), length / 2},
		"by a key function":          {keyfunc.Body(), length},
		"by a key function, in part": {keyfunc.Body(), length / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var read atomic.Int64
			once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), test.key, middleware.WithShadow(),
				middleware.WithMaxBody(test.limit))
			handler := once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				var readers, ready sync.WaitGroup
				ready.Add(4)
				for range 4 {
					readers.Go(func() {
						ready.Done()
						ready.Wait()
						read.Add(readByBytes(t, r.Body))
					})
				}
				readers.Wait()
			}))
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("a", length)))
			r.ContentLength = -1 // read up to the limit
			r.Header.Set("Idempotency-Key", "k")
			handler.ServeHTTP(&discarded{header: http.Header{}}, r)
			if got := read.Load(); got != length {
				t.Errorf("the handler read %d bytes, want %d", got, length)
			}
		})
	}
}

// readByBytes reads body to its end, in many small steps, and returns how many bytes that were.
func readByBytes(t *testing.T, body io.Reader) (total int64) {
	for {
		n, err := body.Read(make([]byte, 3))
		total += int64(n)
		switch {
		case err == io.EOF:
			return total
		case err != nil:
			t.Error(err)
			return total
		}
	}
}

// A goroutine that the handler leaves behind reads nothing of the body.
func TestShadowBodyIsCutOff(t *testing.T) {
	t.Parallel()
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"), middleware.WithShadow(),
		middleware.WithMaxBody(100))
	var body io.Reader
	for name, test := range map[string]struct {
		length int
		next   func(http.Handler) http.Handler
		panics bool
	}{
		"first and duplicate": {100, func(h http.Handler) http.Handler { return h }, false},
		"too long":            {200, func(h http.Handler) http.Handler { return h }, false},
		"mounted twice":       {100, once, false},
		"it panics":           {100, func(h http.Handler) http.Handler { return h }, true},
	} {
		handler := once(test.next(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body = r.Body
			if n, err := body.Read(make([]byte, 10)); n != 10 || err != nil {
				t.Errorf("%s: in the handler: %d, %v", name, n, err)
			}
			if test.panics {
				panic(http.ErrAbortHandler)
			}
		})))
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("a", test.length)))
			r.ContentLength = -1
			original := r.Body
			r.Header.Set("Idempotency-Key", strings.ReplaceAll(name, " ", "-"))
			func() {
				defer func() { _ = recover() }()
				handler.ServeHTTP(&discarded{header: http.Header{}}, r)
			}()
			if b, err := io.ReadAll(body); len(b) > 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("%s: after the handler: %d bytes, %v", name, len(b), err)
			}
			if r.Body != original {
				t.Errorf("%s: outer middlewares get another body", name)
			}
		}
	}
}

// The response does not wait for a goroutine that waits for the rest of the body.
func TestShadowDoesNotWaitForAReader(t *testing.T) {
	t.Parallel()
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"), middleware.WithShadow(),
		middleware.WithMaxBody(100))
	reads, result := make(chan struct{}), make(chan error, 1)
	handler := once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, 101)); err != nil {
			t.Error(err)
		}
		go func() {
			n, err := r.Body.Read(make([]byte, 10))
			if n > 0 {
				err = errors.New("it read something")
			}
			result <- err
		}()
		<-reads
	}))
	paused := &pausedBody{before: strings.NewReader(strings.Repeat("a", 101)), reads: reads, rest: make(chan struct{})}
	r := httptest.NewRequest(http.MethodPost, "/", paused)
	r.ContentLength = -1
	r.Header.Set("Idempotency-Key", "k")
	handler.ServeHTTP(&discarded{header: http.Header{}}, r)
	close(paused.rest)
	if err := <-result; !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("the goroutine got %v", err)
	}
}

// pausedBody returns what is before, and pauses before the rest.
type pausedBody struct {
	before *strings.Reader
	reads  chan struct{} // closed when the rest is read
	rest   chan struct{} // the rest comes when it is closed
}

func (b *pausedBody) Read(p []byte) (int, error) {
	if b.before.Len() > 0 {
		return b.before.Read(p)
	}
	close(b.reads)
	<-b.rest
	return copy(p, "rest"), nil
}
