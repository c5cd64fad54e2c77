package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/record"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// run runs the handler of a request that took its key, settles the key, and sends the response. The numbers are the steps
// of [Idempotency].
func (c *call) run(lease *lock.Lease) {
	if refusal := c.begin(lease); refusal.given() { // still 4
		c.answer(&refusal)
		return
	}
	exec, rec := &c.running.exec, &c.running.recorder
	*exec = Execution{key: c.identity.inRedis, fence: lease.Fence(), outer: c.identity.outer, atMostOnce: c.atMostOnce, retention: c.retention}
	rec.begin(c.w, c.r, exec, c.maxResponse)

	interrupted := errNoReturn // nil once the key is settled
	defer func() {
		if interrupted != nil { // a panic or a runtime.Goexit, which goes on after this
			c.finishInterrupted(lease, interrupted)
		}
	}()
	c.handle(lease) // 5, 6
	interrupted = errNoConclusion
	e := c.conclude(exec.said())
	err := c.settle(lease, e) // 7
	interrupted = nil
	if errors.Is(err, lock.ErrLost) && e.key != keyLeft && !rec.sent && !rec.bypassed {
		var instead answer
		if instead, err = c.giveWay(e, err); instead.given() {
			rec.drain()
			rec.takeBack()
			c.answer(&instead)
			rec.free()
			return
		}
	}
	defer c.emit(e.told(err), rec.status, errors.Join(e.why, err)) // 8
	rec.drain()
	switch {
	case rec.bypassed: // it has gone out
	case rec.expired:
		rec.deliverTimeout(c.r.Context())
	default:
		rec.deliver()
	}
	rec.free()
}

// finishInterrupted leaves the key as the outcome of a run that did not return demands.
func (c *call) finishInterrupted(lease *lock.Lease, why error) {
	rec := &c.running.recorder
	c.cutOff()
	rec.withdraw()
	e := c.unknown(c.running.exec.said(), why)
	status, err := rec.seen(), c.settle(lease, e)
	rec.forget()
	c.emit(Unknown, status, errors.Join(e.why, err))
}

// handle calls the handler.
func (c *call) handle(lease *lock.Lease) {
	exec, rec, ctx := &c.running.exec, &c.running.recorder, &c.running.ctx
	started := time.Now()
	overdue := started.Add(c.maxDuration)
	lease.AbandonAt(overdue)
	*ctx = runContext{exec: exec, lease: lease, deadline: c.earliest(overdue)}
	r := c.request(ctx)
	defer func() {
		lease.AbandonAt(time.Time{})
		c.timing.inHandler = time.Since(started)
		c.timing.completed = started.Add(c.timing.inHandler)
		c.removeTemporaryFiles(r)
		ctx.end(c.timing.completed)
		c.identity.body = nil // not needed while the response is stored
	}()
	c.next.ServeHTTP(rec, r)
	c.cutOff()
	c.identity.body.Free() // not after a panic or a Goexit
	switch {
	case rec.bypassed:
	case rec.silent() && ctx.Err() != nil:
		rec.giveUp()
	default:
		rec.finish()
	}
}

// cutOff takes from goroutines that the handler has left behind what it was given.
func (c *call) cutOff() {
	c.running.recorder.cutOff()
	c.running.recorder.findBypass()
	c.running.body.cutOff()
}

// earliest lets the run end at the outer deadline if that is before the one given. Nothing else that ends the request's
// own context ends the run: net/http does that as soon as the client is gone.
func (c *call) earliest(deadline time.Time) time.Time {
	if outer, ok := c.r.Context().Deadline(); ok && outer.Before(deadline) {
		return outer
	}
	return deadline
}

// ending is what becomes of a run's key.
type ending struct {
	key       fate
	record    record.Record // if it is kept
	retention time.Duration // of the record
	outcome   Outcome       // if that succeeds
	why       error         // of an outcome that needs one
}

type fate int

const (
	keyFreed fate = iota // released: a retry runs
	keyKept              // settled with a record
	keyLeft              // neither: it stays taken until the lease, and a hold behind it, run out
)

// Why the outcome of a run is Unknown. A panic's value is not told: it may hold what nobody may log.
var (
	errNoReturn     = errors.New("middleware: the handler panicked, or called runtime.Goexit")
	errNoConclusion = errors.New("middleware: the function of WithStored panicked, or called runtime.Goexit")
	errSaidUnknown  = errors.New("middleware: the handler called Execution.Unknown")
	errBroken       = errors.New("middleware: the response is shorter or longer than its Content-Length")
	errSilent       = errors.New("middleware: the handler returned without a response after its context was done")
)

// conclude decides about the key of a handler that returned.
func (c *call) conclude(said said) ending {
	rec := &c.running.recorder
	switch {
	case said.unknown:
		return c.unknown(said, errSaidUnknown)
	case rec.bypassed:
		return ending{key: keyKept, record: c.tombstone(rec), retention: said.retention, outcome: NotStored, why: errBypassed}
	case said.discard:
		return ending{key: keyFreed, outcome: Freed}
	case rec.expired:
		return c.unknown(said, fmt.Errorf("%w: %w", errSilent, context.Cause(&c.running.ctx)))
	case rec.broken():
		return c.unknown(said, errBroken)
	case !rec.whole():
		return ending{key: keyKept, record: c.tombstone(rec), retention: said.retention, outcome: NotStored}
	case said.never || c.stored(rec.status) || c.atMostOnce && rec.status >= 500:
		kept, cookiesDropped := c.record(rec)
		e := ending{key: keyKept, record: kept, retention: said.retention, outcome: Executed}
		if cookiesDropped {
			e.outcome = CookiesDropped
		}
		if !kept.IsReadable() {
			e.record, e.outcome = c.tombstone(rec), NotStored
		}
		return e
	}
	return ending{key: keyFreed, outcome: Freed}
}

// unknown decides about the key of a run of which nobody knows what it did. It is left to run out and not released: a
// retry that comes at once must not run. Once a byte has left, or the handler has said so, it must not ever.
func (c *call) unknown(said said, why error) ending {
	e := ending{key: keyLeft, outcome: Unknown, why: why}
	if said.never && !c.atMostOnce { // its hold says more than a tombstone: that nobody knows
		e.key, e.record, e.retention = keyKept, c.tombstone(&c.running.recorder), max(said.retention, c.retention)
	}
	return e
}

// settle does with the key what was decided.
func (c *call) settle(lease *lock.Lease, e ending) (err error) {
	start := c.clock()
	switch e.key {
	case keyFreed:
		err = lease.Release(&c.values)
	case keyKept:
		err = lease.SettleAppend(&c.values, e.record.Room(), func(b []byte) []byte {
			return c.codec.Append(b, c.running.recorder.scratch, c.identity.inRedis, e.record)
		}, e.retention)
	case keyLeft:
		lease.Abandon()
		err = lease.Err() // the run may be a second effect as well: another may have the key
	}
	c.waited(start)
	return err
}

// told returns the outcome of a run whose key was settled with that error.
func (e *ending) told(err error) Outcome {
	switch {
	case errors.Is(err, lock.ErrLost) && e.key != keyLeft:
		return LeaseLost
	case err != nil && e.outcome != Unknown && e.key == keyKept:
		return NotStored
	}
	return e.outcome
}

// tombstone says that the request was processed, and that its response cannot be replayed.
func (c *call) tombstone(rec *recorder) record.Record {
	return record.Record{
		Tombstone: true, Fingerprint: c.identity.fingerprints[0], Completed: c.timing.completed,
		Response: response.Response{Status: rec.status},
	}
}

// record returns what is kept of a response, and whether that is without its cookies.
func (c *call) record(rec *recorder) (r record.Record, cookiesDropped bool) {
	changed := rec.scratch.Changed(rec.before, rec.header)
	header, cookiesDropped := response.Storable(changed, response.ValuesOf(rec.header, "Connection"), c.cookies)
	end := rec.end
	if end == nil {
		end = rec.Header()
	}
	trailers := response.Trailers(response.ValuesOf(rec.header, "Trailer"), rec.before, end)
	trailer, dropped := response.WithoutCookies(trailers, c.cookies)
	return record.Record{
		Fingerprint: c.identity.fingerprints[0],
		Completed:   c.timing.completed,
		Response:    response.Response{Status: rec.status, Header: header, Trailer: trailer, Body: rec.body.Bytes()},
	}, cookiesDropped || dropped
}
