package middleware

import (
	"errors"
	"time"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// run runs the handler of a request that took its key, settles the key, and sends the response. The numbers are the steps
// of [Idempotency].
func (c *call) run(lease *lock.Lease) {
	if refusal := c.begin(lease); refusal.given() { // still 4
		c.answer(&refusal)
		return
	}
	exec, w := &c.running.exec, &c.running.writer
	*exec = Execution{key: c.identity.inRedis, fence: lease.Fence(), outer: c.identity.outer, atMostOnce: c.atMostOnce, retention: c.retention}
	w.Begin(c.w, c.r, (*committer)(exec), c.maxResponse)

	interrupted := errNoReturn // nil once the key is settled
	defer func() {
		if interrupted != nil { // a panic or a runtime.Goexit, which goes on after this
			c.finishInterrupted(lease, interrupted)
		}
	}()
	verdict := c.handle(lease) // 5, 6
	interrupted = errNoDecision
	end := c.finish(verdict)
	err := c.settle(lease, end) // 7
	interrupted = nil
	if errors.Is(err, lock.ErrLost) && end.action != abandonKey && !w.Committed() {
		var instead answer
		if instead, err = c.giveWay(end, err); instead.given() {
			w.Withdraw()
			c.answer(&instead)
			return
		}
	}
	defer c.emit(end.outcomeAfter(err), w.Status(), errors.Join(end.why, err)) // 8
	w.Deliver(c.r.Context())
}

// handle calls the handler, and returns how much of a response there is.
func (c *call) handle(lease *lock.Lease) capture.Verdict {
	exec, w, ctx := &c.running.exec, &c.running.writer, &c.running.ctx
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
	c.next.ServeHTTP(w, r)
	c.running.body.cutOff()
	c.identity.body.Free() // not after a panic or a Goexit
	return w.Seal(ctx)
}

// earliest returns deadline, or the deadline of the request's context if that is earlier. Nothing else that ends the
// request's context ends the run: net/http cancels it as soon as the client has left.
func (c *call) earliest(deadline time.Time) time.Time {
	if outer, ok := c.r.Context().Deadline(); ok && outer.Before(deadline) {
		return outer
	}
	return deadline
}

// finishInterrupted does with the key what the outcome of a run that did not return demands.
func (c *call) finishInterrupted(lease *lock.Lease, why error) {
	c.running.body.cutOff()
	c.running.writer.Abort()
	end := c.unknown(c.running.exec.decision(), why)
	err := c.settle(lease, end)
	c.emit(Unknown, c.running.writer.SentStatus(), errors.Join(end.why, err))
}
