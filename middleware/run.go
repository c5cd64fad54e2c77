package middleware

import (
	"errors"
	"time"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// run runs the handler of a request that took its key, settles the key, and sends the response. The numbers are the
// steps of [Idempotency]. lease is nil if only the journal protects the run.
func (c *call) run(lease *lock.Lease) {
	if instead := c.begin(lease); instead != nil { // 4, continued: the journal
		c.respond(instead)
		return
	}
	exec, w := &c.running.exec, &c.running.writer
	c.initExecution(exec, lease)
	w.Begin(c.w, c.r, (*sendObserver)(exec), c.maxResponse)
	outcome, replacement, err := c.handleAndConclude(lease) // 5 to 7
	if replacement != nil {
		w.Withdraw()
		c.respond(replacement)
		return
	}
	// 8. The response is sent, and the observer is called even if the underlying writer panics.
	defer c.emit(outcome, w.Status(), err)
	w.Deliver(c.r.Context())
}

func (c *call) initExecution(e *Execution, lease *lock.Lease) {
	e.key, e.outer, e.retention = c.storageKey(), c.identity.outer, c.retention
	e.atMostOnce = c.atMostOnce || e.journaled != nil && e.journaled.run.Intent
	if lease != nil {
		e.fence = lease.Fence()
	}
}

// handleAndConclude calls the handler, decides the run's ending, and applies it. It returns the answer that replaces
// the run's response, if there is one, and otherwise the outcome and error for the Event. After a panic or a
// runtime.Goexit it concludes the run as interrupted, and the panic propagates.
func (c *call) handleAndConclude(lease *lock.Lease) (outcome Outcome, replacement *answer, err error) {
	reason := errNoReturn // why the run is interrupted, if this function does not return
	returned := false
	defer func() {
		if !returned {
			c.concludeInterrupted(lease, reason)
		}
	}()
	verdict := c.handle(lease) // 5, 6: the handler runs, its response is held back
	reason = errNotConcluded   // what panics from now on is not the handler
	end := c.decideEnding(verdict)
	replacement, err = c.conclude(lease, &end) // 7: the ending is applied to the key
	returned = true
	return end.outcomeAfter(err), replacement, errors.Join(end.why, err)
}

// handle calls the handler, and returns how much of a response there is.
func (c *call) handle(lease *lock.Lease) capture.Verdict {
	exec, w, ctx := &c.running.exec, &c.running.writer, &c.running.ctx
	started := time.Now()
	deadline := started.Add(c.maxDuration)
	contextLease := lease // the handler's context ends when this lease is lost
	if j := c.journaled(); j != nil {
		deadline = j.deadline
		contextLease = nil // the journal decides who has run, so the loss of the lease must not end the run
	}
	abandonAt(lease, deadline)
	*ctx = runContext{exec: exec, detached: c.detached(), lease: contextLease, deadline: c.capByRequest(deadline)}
	r := c.request(c.withRun(ctx))
	defer func() {
		abandonAt(lease, time.Time{}) // the handler is back: the lease is renewed until the key is settled
		phase := phaseSince(started)
		c.timing.completed = phase.end()
		c.ranHandler(r, phase)
		c.removeTemporaryFiles(r)
		ctx.end(c.timing.completed)
		c.identity.body = nil // not needed while the response is stored
	}()
	c.next.ServeHTTP(w, r)
	c.cutOff()
	c.identity.body.Free() // only after cutOff, so not after a panic: a goroutine may still be reading it
	return w.Seal(ctx)
}

// cutOff takes the Execution, the body and the journal from goroutines that the handler has left behind. It waits for a
// transaction that is being committed; the response of that transaction is final already. The writer's Seal and Abort do
// the same for the response.
func (c *call) cutOff() {
	c.running.exec.cutOff()
	if c.journaled() != nil {
		c.journaled().cutOff()
	}
	c.running.body.CutOff()
}

// conclude applies the ending to the journal, if there is one, and to the key. It returns the answer that replaces the
// run's own response if the key was lost and could not be taken again, or if it is not known whether the run's
// transaction was committed.
func (c *call) conclude(lease *lock.Lease, end *ending) (replacement *answer, err error) {
	if c.journaled() != nil {
		replacement, err = c.concludeJournaled(lease, end)
	} else {
		err = c.applyEnding(lease, end)
		isReplaceable := end.action != abandonKey && !c.running.writer.Started()
		if errors.Is(err, lock.ErrLost) && isReplaceable {
			replacement, err = c.reclaimOrGiveWay(end, err)
		}
	}
	if e := c.event; e != nil && end.action != abandonKey {
		e.Settle = phaseSince(e.Handler.end())
		if replacement == nil {
			e.Size = end.size
		}
	}
	return replacement, err
}

// concludeInterrupted concludes a run that a panic or a runtime.Goexit has interrupted, and calls the observer.
func (c *call) concludeInterrupted(lease *lock.Lease, why error) {
	c.cutOff()
	c.running.writer.Abort()
	end := c.unknownEnding(c.running.exec.decision(), why)
	if j := c.journaled(); j != nil && j.phase == txCommitted {
		end = c.committedEnding()
		end.why = why
	}
	replacement, err := c.conclude(lease, &end) // the replacement is not sent: the panic propagates
	if replacement != nil {
		err = errors.Join(err, replacement.err)
	}
	c.emit(end.outcomeAfter(err), c.running.writer.SentStatus(), errors.Join(end.why, err))
}
