package oncetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// exchange is one request and its response. It is also the handler's ResponseWriter.
type exchange struct {
	stage   *stage
	sending func()                          // fault.sending
	strike  atomic.Pointer[func(*exchange)] // fault.answering, until it is called; nil without
	cancel  context.CancelFunc              // the client disconnects
	done    chan struct{}                   // closed when the handler has returned; then status, sent and panicked do not change

	mu      sync.Mutex // guards the fields below
	header  http.Header
	status  int
	sent    http.Header // the header as it was sent
	leaving bool        // the client has disconnected

	panicked any
}

// fault is what happens to a run after its effect. Its functions may be nil.
type fault struct {
	answering func(*exchange) // called once, when the handler or a middleware touches the response after the effect
	sending   func()          // called before each part of the body is sent
}

// send starts a goroutine in which the instance serves a request.
func (i *instance) send(r *http.Request, f fault) *exchange {
	ctx, cancel := context.WithCancel(r.Context())
	x := &exchange{stage: i.stage, sending: f.sending, cancel: cancel, done: make(chan struct{}), header: http.Header{}}
	if f.answering != nil {
		x.strike.Store(&f.answering)
	}
	go func() {
		defer close(x.done)
		defer cancel()
		defer func() { x.panicked = recover() }()
		i.handler.ServeHTTP(x, r.WithContext(ctx))
	}()
	return x
}

// answered waits until the exchange is over, or its handler seems to wait for something. It reports whether the
// exchange is over.
func (x *exchange) answered() bool {
	select {
	case <-x.done:
		return true
	case <-time.After(glance):
		return false
	}
}

// await waits for the end of the exchange. If there is none before the limit of Run is over, the test fails.
func (x *exchange) await() bool {
	x.stage.t.Helper()
	select {
	case <-x.done:
		return true
	case <-time.After(time.Until(x.stage.ends)):
	}
	x.stage.failOver("there was an answer. %s", adviceHang)
	return false
}

// do sends the request that newRequest returns, and waits for its answer. After a 503 it tries again, as clients do.
func (i *instance) do(newRequest func(key string) *http.Request) (x *exchange, ok bool) {
	i.stage.t.Helper()
	const tries = 5
	for range tries {
		x = i.send(newRequest(i.stage.key), fault{})
		if !x.await() {
			return x, false
		}
		if x.finalStatus() != http.StatusServiceUnavailable {
			break
		}
	}
	return x, true
}

// String describes the answer for failure messages, without the body, which may be private.
func (x *exchange) String() string {
	select {
	case <-x.done:
	default:
		return "none yet"
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.panicked != nil:
		return "a panic"
	case x.replayed():
		return fmt.Sprintf("%d, replayed", x.finalStatus())
	}
	return fmt.Sprintf("%d", x.finalStatus())
}

func (x *exchange) replayed() bool { return x.sent.Get("Idempotent-Replayed") == "true" }

// succeeded reports whether the answer promises that the request was carried out.
func (x *exchange) succeeded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.panicked == nil && x.finalStatus() < 400
}

func (x *exchange) finalStatus() int {
	if x.status == 0 {
		return http.StatusOK
	}
	return x.status
}

// Header returns the header of the response. The middleware calls it when the handler sets a status. So a fault strikes
// here while the handler runs, whatever is mounted around it.
func (x *exchange) Header() http.Header {
	x.touch()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.header
}

func (x *exchange) touch() {
	if f := x.strike.Load(); f != nil && x.stage.happened() && x.strike.CompareAndSwap(f, nil) {
		(*f)(x)
	}
}

// WriteHeader sends the status and the header.
func (x *exchange) WriteHeader(status int) {
	x.touch()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.status == 0 && status >= 200 {
		x.status, x.sent = status, x.header.Clone()
	}
}

var errGone = errors.New("oncetest: the client has disconnected")

// Write sends a part of the body.
func (x *exchange) Write(p []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	if x.sending != nil {
		x.sending()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.leaving {
		return 0, errGone
	}
	return len(p), nil
}

// Flush does nothing: what is written has been sent.
func (*exchange) Flush() {}

// disconnect disconnects the client.
func (x *exchange) disconnect() {
	x.mu.Lock()
	x.leaving = true
	x.mu.Unlock()
	x.cancel()
}
