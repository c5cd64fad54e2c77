package middleware

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/internal/run"
)

// Why the outcome of a run is not Executed, by what its handler has said.
var (
	errRefusedInside = errors.New("middleware: the handler answered an error after a middleware inside of it, under another " +
		"key, had refused the request for now")
	errServerErrorKept = errors.New("middleware: Keep has no effect on a response of 500 or above (WithoutServerErrors)")
)

// ErrCommitted means that a key can no longer be freed: the response has begun to be sent, the handler has called
// [Execution.Keep] or [Execution.Unknown], or it has returned.
var ErrCommitted = run.ErrCommitted

// Execution is a protected handler's own run: what the handler can ask and decide about it. Its methods may be called
// concurrently. A call after the handler has returned comes too late to have an effect. The methods of a nil Execution
// do nothing and return zero values.
type Execution struct {
	key     string      // the storage key
	alias   string      // what Key returns in shadow; otherwise empty
	fence   int64       // 0 if the Locker does not number its leases
	outer   *Execution  // of a middleware around this one, under another key; nil if there is none
	refused atomic.Bool // a middleware inside of this run, under another key, has refused what a retry may get
	control *run.Control
}

type executionKey struct{}

// noteRefusal tells the run, and those around it, that a middleware inside of them has refused a request that may succeed
// later.
func (e *Execution) noteRefusal() {
	for ; e != nil; e = e.outer {
		e.refused.Store(true)
	}
}

// endingWith returns how the handler has ended that has answered in full, with this status. If it has passed on a
// refusal, a retry may succeed where this response would be replayed, so the response is not stored. A status below 400
// is the handler's own success: it has done without the middleware inside.
func (e *Execution) endingWith(status int) run.Ending {
	if status >= http.StatusBadRequest && e.refused.Load() {
		return run.Ending{How: run.Refused, Err: errRefusedInside}
	}
	return run.Ending{How: run.Whole}
}

// wholeEnding returns how the handler of e has ended that has answered in full. header returns the header of the response.
// expired is why the run's context was done, or nil.
func (o *options) wholeEnding(e *Execution, status int, header func() http.Header, expired error) run.Ending {
	end := e.endingWith(status)
	if end.How == run.Whole && expired == nil && o.saysNothing(status, header) {
		end.How = run.NothingHappened
	}
	return end
}

// forbidden returns how the handler has ended whose response must not be stored.
func (e *Execution) forbidden() run.Ending {
	if wish, _, _ := e.control.Said(); wish == run.WishKeep {
		return run.Ending{How: run.Forbidden, Err: errServerErrorKept}
	}
	return run.Ending{How: run.Forbidden}
}

// FromContext returns the run that ctx belongs to, or nil if ctx belongs to no protected run.
func FromContext(ctx context.Context) *Execution {
	e, _ := ctx.Value(executionKey{}).(*Execution)
	return e
}

// Key returns the storage key: the key as it stands in Redis, hashed. In shadow each run has another one
// ([WithShadow]).
func (e *Execution) Key() string {
	if e == nil {
		return ""
	}
	if e.alias != "" {
		return e.alias
	}
	return e.key
}

// Fence returns the fencing number of the run's lease, for a resource that refuses numbers lower than one it has seen.
// It is 0 if the Locker does not number its leases.
func (e *Execution) Fence() int64 {
	if e == nil {
		return 0
	}
	return e.fence
}

// Keep stores this response whatever its status is: the effect has happened, so the key must not be freed. If the
// handler then leaves no response to store, because it panics, for example, a retry still does not run: it gets 409
// response-not-stored or, with [WithAtMostOnce], in-flight and then outcome-unknown.
//
// Keep overrides Discard. It has no effect on a response of 500 and above with [WithoutServerErrors]. If both Keep and
// Unknown are called, the last call wins.
func (e *Execution) Keep() { e.controls().Keep() }

// Unknown declares that the handler does not know whether the effect has happened, because a COMMIT got no reply, for
// example. The response is sent and not stored. The key is left as after a panic: a retry gets 409 in-flight until the
// lease has run out. Then it runs again or, with [WithAtMostOnce], gets 409 outcome-unknown for [WithRetention]'s time.
// If a byte of the response was sent, no retry runs in WithRetention's time: instead of running again it gets 409
// response-not-stored.
//
// Unknown overrides Discard, whichever is called first. If both Keep and Unknown are called, the last call wins.
func (e *Execution) Unknown() { e.controls().Unknown() }

// Discard frees the key when the handler returns, and stores nothing: nothing has happened, so a retry runs. It returns
// [ErrCommitted] once a byte of the response was sent or the handler has returned, and after Keep or Unknown. A byte
// that is sent later cancels it.
func (e *Execution) Discard() error { return e.controls().Discard() }

// Retain sets how long this response is replayed, instead of [WithRetention]. A time below a millisecond is ignored. With
// a transactional journal it is replayed for at least [WithMaxDuration] and a minute: until then another run of the key may
// try to commit, and the row makes its transaction fail.
func (e *Execution) Retain(d time.Duration) { e.controls().Retain(d) }

// controls returns the run's Control, or one that belongs to no run if e is nil.
func (e *Execution) controls() *run.Control {
	if e == nil {
		return new(run.Control)
	}
	return e.control
}

// runs reports whether e, or a run around it, has this key. A run in shadow protects nothing, so it counts only if the
// caller is in shadow too.
func (e *Execution) runs(key string, shadow bool) bool {
	for ; e != nil; e = e.outer {
		if e.key == key && (shadow || e.alias == "") {
			return true
		}
	}
	return false
}
