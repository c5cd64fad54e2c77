package middleware

import (
	"errors"
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

	concluded := false
	defer func() {
		if !concluded { // a panic or a runtime.Goexit, which goes on after this
			c.cutOff()
			rec.withdraw()
			status, err := rec.seen(), c.leave(lease, exec, rec)
			rec.forget()
			c.emit(Unknown, status, err)
		}
	}()
	c.handle(lease, exec, rec)
	outcome, err := c.conclude(lease, exec, rec)
	concluded = true
	defer c.emit(outcome, rec.status, err)
	rec.drain()
	if rec.expired {
		rec.deliverTimeout(c.r.Context())
	} else {
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
	if rec.silent() && c.ctx.Err() != nil {
		rec.giveUp()
	} else {
		rec.finish()
	}
}

// cutOff takes from goroutines that the handler has left behind what it was given.
func (c *call) cutOff() {
	c.rec.cutOff()
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

// conclude stores the response of a handler that returned, or frees the key.
func (c *call) conclude(lease *lock.Lease, exec *Execution, rec *recorder) (Outcome, error) {
	said := exec.said()
	switch {
	case said.discard:
		return c.free(lease)
	case rec.expired, rec.broken():
		return Unknown, c.leave(lease, exec, rec)
	case !rec.whole():
		return settled(NotStored, c.settle(lease, said, c.tombstone(rec)))
	case said.never || c.stored(rec.status) || c.atMostOnce && rec.status >= 500:
		kept, cookiesDropped := c.record(rec)
		if !kept.isReadable() {
			return settled(NotStored, c.settle(lease, said, c.tombstone(rec)))
		}
		if cookiesDropped {
			return settled(CookiesDropped, c.settle(lease, said, kept))
		}
		return settled(Executed, c.settle(lease, said, kept))
	}
	return c.free(lease)
}

// leave deals with the key of a run of which nobody knows what it did. It is left to run out and not released: a
// retry that comes at once must not run. Once a byte has left, or the handler has said so, it must not ever.
func (c *call) leave(lease *lock.Lease, exec *Execution, rec *recorder) error {
	if said := exec.said(); said.never && !c.atMostOnce { // its hold says more than a tombstone: that nobody knows
		said.retention = max(said.retention, c.retention)
		return c.settle(lease, said, c.tombstone(rec))
	}
	lease.Abandon()
	return nil
}

func (c *call) free(lease *lock.Lease) (Outcome, error) {
	start := c.clock()
	err := lease.Release(&c.values)
	c.waited(start)
	if errors.Is(err, lock.ErrLost) {
		return LeaseLost, err
	}
	return Freed, err
}

func (c *call) settle(lease *lock.Lease, said said, r record) error {
	start := c.clock()
	err := lease.SettleAppend(&c.values, r.room(), func(b []byte) []byte {
		return c.codec.appendRecord(b, c.rec.scratch, c.inRedis, r)
	}, said.retention)
	c.waited(start)
	return err
}

// settled returns the outcome of a Settle that, if nothing went wrong, has the outcome given.
func settled(outcome Outcome, err error) (Outcome, error) {
	switch {
	case err == nil:
		return outcome, nil
	case errors.Is(err, lock.ErrLost):
		return LeaseLost, err
	}
	return NotStored, err
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
