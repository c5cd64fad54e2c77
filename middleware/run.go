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
	if refusal := c.begin(lease); refusal.given() { // 4: hold and journal
		c.answer(&refusal)
		return
	}
	exec, w := &c.running.exec, &c.running.writer
	c.initExecution(exec, lease)
	w.Begin(c.w, c.r, (*sendObserver)(exec), c.maxResponse)

	interrupted := errNoReturn // what to record if the code below panics; nil once the key needs no more care
	defer func() {
		if interrupted != nil { // a panic or a runtime.Goexit, which goes on after this
			c.finishInterrupted(lease, interrupted)
		}
	}()
	verdict := c.handle(lease) // 5, 6: the handler runs, its response is held back
	interrupted = errNoDecision
	end := c.decideEnding(verdict)
	replacement, err := c.conclude(lease, &end) // 7: the ending is applied to the key
	interrupted = nil
	if replacement.given() {
		w.Withdraw()
		c.answer(&replacement)
		return
	}
	// 8: the response is sent, and the observer is called even if the underlying writer panics. The status is read now:
	// Deliver gives back what it stands in.
	defer c.emit(end.outcomeAfter(err), w.Status(), errors.Join(end.why, err))
	w.Deliver(c.r.Context())
}

func (c *call) initExecution(e *Execution, lease *lock.Lease) {
	e.key, e.outer, e.retention = c.storageKey(), c.identity.outer, c.retention
	e.atMostOnce = c.atMostOnce || e.journaled != nil && e.journaled.run.Intent
	if lease != nil {
		e.fence = lease.Fence()
	}
}

// handle calls the handler, and returns how much of a response there is.
func (c *call) handle(lease *lock.Lease) capture.Verdict {
	exec, w, ctx := &c.running.exec, &c.running.writer, &c.running.ctx
	started := time.Now()
	deadline := started.Add(c.maxDuration)
	if c.running.exec.journaled != nil {
		deadline = c.running.exec.journaled.deadline
	}
	abandonAt(lease, deadline)
	*ctx = runContext{exec: exec, detached: c.detached(), lease: lease, deadline: c.capByRequest(deadline)}
	if c.journal != nil { // the journal decides who has run: the loss of the lease does not end the run
		ctx.lease = nil
	}
	r := c.request(ctx)
	defer func() {
		abandonAt(lease, time.Time{})
		handler := phaseSince(started)
		c.timing.completed = handler.end()
		c.ranHandler(r, handler)
		c.removeTemporaryFiles(r)
		ctx.end(c.timing.completed)
		c.identity.body = nil // not needed while the response is stored
	}()
	c.next.ServeHTTP(w, r)
	c.cutOff()
	c.identity.body.Free() // not after a panic or a Goexit
	return w.Seal(ctx)
}

// conclude applies the ending to the key. If the run has lost its key to another, it returns the answer that replaces the
// run's own response.
func (c *call) conclude(lease *lock.Lease, end *ending) (replacement answer, err error) {
	if c.running.exec.journaled != nil {
		replacement, err = c.concludeJournaled(lease, end)
	} else {
		err = c.applyEnding(lease, end)
		if errors.Is(err, lock.ErrLost) && end.action != abandonKey && !c.running.writer.Started() {
			replacement, err = c.giveWay(end, err)
		}
	}
	if e := c.event; e != nil && end.action != abandonKey {
		e.Settle = phaseSince(e.Handler.end())
		if !replacement.given() {
			e.Size = end.size
		}
	}
	return replacement, err
}

// finishInterrupted concludes a run whose handler panicked or called runtime.Goexit.
func (c *call) finishInterrupted(lease *lock.Lease, why error) {
	c.cutOff()
	c.running.writer.Abort()
	end := c.unknownEnding(c.running.exec.decision(), why)
	if t := c.running.exec.journaled; t != nil && t.phase == txCommitted {
		end = t.committedEnding()
		end.why = why
	}
	replacement, err := c.conclude(lease, &end) // it is not sent: the panic goes on
	err = errors.Join(err, replacement.err)
	c.emit(end.outcomeAfter(err), c.running.writer.SentStatus(), errors.Join(end.why, err))
}

// cutOff takes the body and the journal from goroutines that the handler has left behind. The writer's Seal and Abort do
// the same for the response.
func (c *call) cutOff() {
	if c.running.exec.journaled != nil {
		c.running.exec.journaled.cutOff()
	}
	c.running.body.cutOff()
}
