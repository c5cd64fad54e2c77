package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// run is what becomes of the request that took the key: the handler runs, then the key is settled, then the response
// goes out.
func (c *call) run(lease *lock.Lease) {
	exec, rec := &c.exec, &c.rec
	*exec = Execution{key: c.inRedis, fence: lease.Fence(), outer: c.outer, retention: c.retention}
	rec.begin(c.w, c.r, exec, c.maxResponse)

	interrupted := errNoReturn // nil once the key is settled
	defer func() {
		if interrupted != nil { // a panic or a runtime.Goexit, which goes on after this
			c.cutOff()
			rec.withdraw()
			e := c.unknown(exec.said(), interrupted)
			status, err := rec.seen(), c.settle(lease, e)
			rec.forget()
			c.emit(Unknown, status, errors.Join(e.why, err))
		}
	}()
	c.handle(lease, exec, rec)
	interrupted = errNoConclusion
	e := c.conclude(exec.said(), rec)
	err := c.settle(lease, e)
	interrupted = nil
	if errors.Is(err, lock.ErrLost) && !rec.sent && !rec.bypassed {
		var answered bool
		if answered, err = c.giveWay(e, err); answered {
			rec.free()
			return
		}
	}
	defer c.emit(e.told(err), rec.status, errors.Join(e.why, err))
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

// handle calls the handler.
func (c *call) handle(lease *lock.Lease, exec *Execution, rec *recorder) {
	started := time.Now()
	overdue := started.Add(c.maxDuration)
	lease.AbandonAt(overdue)
	c.ctx = runContext{exec: exec, lease: lease, deadline: c.earliest(overdue)}
	r := c.request(&c.ctx)
	defer func() {
		lease.AbandonAt(time.Time{})
		c.inHandler = time.Since(started)
		c.completed = started.Add(c.inHandler)
		c.removeTemporaryFiles(r)
		c.ctx.end(c.completed)
		c.body = nil // not needed while the response is stored
	}()
	c.next.ServeHTTP(rec, r)
	c.cutOff()
	c.body.free() // not after a panic or a Goexit
	switch {
	case rec.bypassed:
	case rec.silent() && c.ctx.Err() != nil:
		rec.giveUp()
	default:
		rec.finish()
	}
}

// cutOff takes from goroutines that the handler has left behind what it was given.
func (c *call) cutOff() {
	c.rec.cutOff()
	c.rec.findBypass()
	c.bodyAgain.cutOff()
}

// earliest lets the run end at the outer deadline if that is before the one given. Nothing else that ends the request's
// own context ends the run: net/http does that as soon as the client is gone.
func (c *call) earliest(deadline time.Time) time.Time {
	if outer, ok := c.r.Context().Deadline(); ok && outer.Before(deadline) {
		return outer
	}
	return deadline
}

// removeTemporaryFiles does for the handler's request what net/http does for its own.
func (c *call) removeTemporaryFiles(r *http.Request) {
	if r.MultipartForm != nil && c.r.MultipartForm == nil {
		_ = r.MultipartForm.RemoveAll() // net/http has nobody to tell either
	}
}

// ending is what becomes of a run's key.
type ending struct {
	key       fate
	record    record        // if it is kept
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

	// errAbandoned is told of a duplicate: only the process of the run itself knows more, if that lives.
	errAbandoned = errors.New("middleware: an earlier run has left its key without an outcome, or its process died")
)

// conclude decides about the key of a handler that returned.
func (c *call) conclude(said said, rec *recorder) ending {
	switch {
	case said.unknown:
		return c.unknown(said, errSaidUnknown)
	case rec.bypassed:
		return ending{key: keyKept, record: c.tombstone(rec), retention: said.retention, outcome: NotStored, why: errBypassed}
	case said.discard:
		return ending{key: keyFreed, outcome: Freed}
	case rec.expired:
		return c.unknown(said, fmt.Errorf("%w: %w", errSilent, context.Cause(&c.ctx)))
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
		if !kept.isReadable() {
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
		e.key, e.record, e.retention = keyKept, c.tombstone(&c.rec), max(said.retention, c.retention)
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
		err = lease.SettleAppend(&c.values, e.record.room(), func(b []byte) []byte {
			return c.codec.appendRecord(b, c.rec.scratch, c.inRedis, e.record)
		}, e.retention)
	case keyLeft:
		lease.Abandon()
	}
	c.waited(start)
	return err
}

// told returns the outcome of a run whose key was settled with that error.
func (e *ending) told(err error) Outcome {
	switch {
	case errors.Is(err, lock.ErrLost):
		return LeaseLost
	case err != nil && e.outcome != Unknown && e.key == keyKept:
		return NotStored
	}
	return e.outcome
}

// tombstone says that the request was processed, and that its response cannot be replayed.
func (c *call) tombstone(rec *recorder) record {
	return record{tombstone: true, fingerprint: c.fingerprints[0], completed: c.completed, status: rec.status}
}

// record returns what is kept of a response, and whether that is without its cookies.
func (c *call) record(rec *recorder) (r record, cookiesDropped bool) {
	header, cookiesDropped := c.storable(rec.scratch.changed(rec.before, rec.header), valuesOf(rec.header, "Connection"))
	end := rec.end
	if end == nil {
		end = rec.Header()
	}
	trailer, dropped := c.withoutCookies(trailers(valuesOf(rec.header, "Trailer"), rec.before, end))
	return record{
		fingerprint: c.fingerprints[0],
		completed:   c.completed,
		status:      rec.status,
		header:      header,
		trailer:     trailer,
		body:        rec.body.bytes(),
	}, cookiesDropped || dropped
}
