package once

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/lock"
)

// Guard lets functions take effect once: see [Do]. It is safe for concurrent use, and for functions of any type. A
// program makes one at start-up.
type Guard struct {
	engine *run.Guard
	options
}

// New returns a Guard whose keys and results are in the Locker's Redis, in its namespace. Other instances with the same
// namespace share them. New panics when l or an option is nil, and on options that contradict each other.
func New(l *lock.Locker, opts ...Option) *Guard {
	option.Check(l != nil, "once.New: the locker is nil")
	g := &Guard{options: options{
		policy: run.DefaultPolicy(record.Value), marshal: json.Marshal, unmarshal: json.Unmarshal,
	}}
	option.Apply("once.New", &g.options, opts)
	g.engine = run.New("once", l, g.policy)
	return g
}

// Do calls f, unless an earlier call with the same key has done so, and returns what f returns. If an earlier call has
// stored its value or its error, Do returns that, with replayed true and the error as a [*StoredError]. Otherwise err
// is a [*Refused]: f was not called, and there is no result. Do may be called concurrently.
//
// A replayed value went through JSON, or the codec of [WithCodec]. If T is or contains any, a number in it becomes a
// float64, and an id or an amount may be another one: see Values in the package comment.
//
// What happens to a call:
//
//  1. The [Key] is checked and hashed, and so is its Input.
//  2. One round trip to Redis claims the key, or returns what it holds. A stored result is returned. If another call is
//     running, this one waits for it ([WithWait]) or gets [ErrInFlight]. If that call has another Input, this one gets
//     [ErrReused]. If Redis does not answer, it gets [ErrUnavailable], and nothing runs, except with [WithFailOpen] or a
//     journal. A journal ([WithJournal]) is then asked whether f may run.
//  3. f runs, in this goroutine. Its context has the values of ctx. It ends at the deadline of ctx, at
//     [WithMaxDuration], and when f has returned. It ends with the cause [lock.ErrLost] when the lease is lost, unless
//     there is a journal. It does not end when ctx is cancelled, because others may wait for the result: see
//     [WithCancel].
//  4. One round trip stores what f has returned, or frees the key: the package comment says when. This does not depend
//     on ctx. If Redis does not answer, Do returns what f has returned, the [Event] has the error, and the background
//     continues to store it ([lock.ErrPending]).
//  5. The observer is called ([WithObserver]), and Do returns.
//
// An error that f returns is returned unchanged, without its mark ([NothingHappened], [Final], [Unknown]). If an inner Do has
// given it to f, it is no longer a [*Refused], a [*StoredError] or an error such as [ErrNotStored]: those are answers of
// this Do only. A panic and runtime.Goexit go on unchanged when step 4 is done.
//
// A lease that has only run out does not matter in step 4, if the key is still free. If another call, or an operator, has
// taken the key, Do returns what the key holds instead of what f has returned, so that its caller does not get a result
// that differs from the stored one.
//
// Inside of f, [FromContext] returns the run. A Do with another key inside of f has a run and a lease of its own; one
// with the same key is a duplicate, and gets ErrInFlight.
func Do[T any](
	ctx context.Context, g *Guard, key Key, f func(context.Context) (T, error),
) (v T, replayed bool, err error) {
	var own T // what f has returned
	var ownErr error
	c := &call{Guard: g, ctx: ctx, operation: key.Operation}
	defer c.reportPanic()
	if err := key.read(&c.run.Request); err != nil {
		c.emit(Event{Outcome: outcomeInvalidKey, Err: err})
		return v, false, &Refused{Reason: ErrInvalidKey, cause: err}
	}
	result := c.do(func(ctx context.Context) (any, error) {
		own, ownErr = f(ctx)
		return own, ownErr
	})
	switch result.Kind {
	case run.Own, run.Unprotected:
		return own, false, foreignOf(ownErr)
	case run.Stored:
		return replay[T](c, &result)
	}
	return v, false, c.refuse(&result)
}

// call is one call of Do.
type call struct {
	*Guard
	ctx       context.Context // the caller's
	operation string
	run       run.Run
	reported  bool // the observer was called
}

// outcomeInvalidKey is that of a call that was refused before it could begin.
const outcomeInvalidKey Outcome = "invalid-key"

// reportPanic calls the observer if a codec has ended the call by a panic or runtime.Goexit.
func (c *call) reportPanic() {
	switch {
	case c.reported:
	case c.run.Key == "":
		c.emit(Event{Outcome: outcomeInvalidKey, Err: errCodecPanicked})
	default:
		c.emit(Event{Outcome: run.OutcomeUnreadable, Err: errCodecPanicked})
	}
}

// do claims the key, runs f if it may, and concludes the run. The Result is Own or Unprotected if what f has returned
// stands; then the observer was called.
func (c *call) do(f func(context.Context) (any, error)) run.Result {
	if c.endsWithCaller && c.ctx.Err() != nil {
		c.engine.StorageKey(&c.run.Request)
		return run.Result{Kind: run.Unavailable, Outcome: run.OutcomeStoreUnavailable, Err: context.Cause(c.ctx)}
	}
	result := c.engine.Begin(c.ctx, &c.run)
	if result.Kind == run.InFlight {
		result = c.engine.Wait(c.ctx, &c.run, result)
	}
	switch result.Kind {
	case run.Begun:
		return c.protect(f)
	case run.Unprotected:
		c.runUnprotected(&result, f)
	}
	return result
}

// replay returns what the record has: a value or an error. A value that T cannot take is a refusal.
func replay[T any](c *call, result *run.Result) (v T, replayed bool, err error) {
	err = c.decode(result.Record.Body, &v)
	if _, isStored := err.(*StoredError); err == nil || isStored {
		c.report(result)
		return v, true, err
	}
	*result = run.Result{
		Kind: run.Unreadable, Outcome: run.OutcomeUnreadable, Err: errors.Join(result.Err, err), Settle: result.Settle,
	}
	var none T // v may have a part of the value
	return none, false, c.refuse(result)
}

// refuse returns the error of a call that gets no result, and calls the observer.
func (c *call) refuse(result *run.Result) error {
	c.report(result)
	return newRefused(result, c.run.StorageKey)
}
