package middleware_test

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// slowHeader is a ResponseWriter whose Header blocks at the first call after inHandler is set.
type slowHeader struct {
	discarded
	slow          sync.Once
	entered, goOn chan struct{}
	inHandler     bool // set before the goroutine that calls Header is started
}

func (w *slowHeader) Header() http.Header {
	if w.inHandler {
		w.slow.Do(func() {
			close(w.entered)
			<-w.goOn
		})
	}
	return w.header
}

// Goroutines that a handler leaves behind can read the body until they are cut off, which is a moment after a panic. Until
// then the memory of the body must not be used for another request.
func TestBodyIsNotUsedAgainAfterAPanic(t *testing.T) {
	// A sync.Pool keeps what is put there for the same processor. With only one, the next request gets it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, end := range map[string]func(){
		"panic":  func() { panic(http.ErrAbortHandler) },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // with the race detector, a sync.Pool drops some of what is put there
				bodyAfter(t, end)
			}
		})
	}
}

// bodyAfter ends a handler while one of its goroutines blocks in Header, which keeps the middleware from cutting them off.
// It then sends other requests, and reads the handler's body.
func bodyAfter(t *testing.T, end func()) {
	t.Helper()
	const length = 1000
	w := &slowHeader{
		discarded: discarded{header: http.Header{}}, entered: make(chan struct{}), goOn: make(chan struct{}),
	}
	var left sync.WaitGroup
	ended := make(chan (<-chan struct{}), 1)
	var body func() string
	protected, send := protect(t, new(canned), func(rec http.ResponseWriter, r *http.Request) {
		body = func() string {
			b := make([]byte, length)
			n, _ := r.Body.Read(b)
			return string(b[:n])
		}
		ended <- r.Context().Done()
		w.inHandler = true
		left.Go(func() { rec.WriteHeader(http.StatusCreated) })
		<-w.entered
		end()
	})
	left.Go(func() {
		defer func() { _ = recover() }()
		send(w, length)
	})
	<-<-ended // the middleware has seen the end of the handler
	sendOthers(protected)
	got := body()
	close(w.goOn)
	left.Wait()
	if strings.Trim(got, "a") != "" {
		t.Fatalf("the handler's goroutine reads %.20q", got)
	}
}
