package middleware

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/problem"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// refusal is a problem that a request gets, and what the observer is told.
type refusal struct {
	problem problem.Problem
	event   Event
}

// refused returns the refusal of a request before it could run.
func refused(kind run.Kind, err error) *refusal {
	answer := kind.Answer()
	return &refusal{problem.New(answer), Event{Outcome: Outcome(answer.Outcome), Status: answer.HTTP.Status, Err: err}}
}

// refusalOf returns the refusal that follows from a result without a response.
func (m *Middleware) refusalOf(result *run.Result) *refusal {
	p := problem.New(result.Kind.Answer())
	switch {
	case result.Kind == run.NotBegun:
		p.Detail = fmt.Sprintf(p.Detail, m.locker.TTL())
	case result.Kind == run.Reused:
		if ended := result.First.Ended; !ended.IsZero() {
			p.FirstEnded = &ended
		}
		p.FirstRunning = result.First.Running
	case result.Kind == run.NotStored:
		p.OriginalStatus = response.Status(result.Record.Body)
	case result.RetryAfter > 0:
		p.RetryAfter = result.RetryAfter
	}
	return &refusal{p, eventOf(result, p.Status)}
}

// answer sends what follows from the result: the stored response, or a problem.
func (x *exchange) answer(result *run.Result) {
	if result.Kind != run.Stored {
		x.refuse(x.m.refusalOf(result))
		return
	}
	stored := response.NewScratch()
	if err := stored.Decode(result.Record.Body); err != nil {
		stored.Free()
		refusal := refused(run.Unreadable, errors.Join(result.Err, err))
		if e := &refusal.event; result.Outcome == run.OutcomeLeaseLost {
			e.Outcome, e.Settle = LeaseLost, Phase(result.Settle)
		}
		x.refuse(refusal)
		return
	}
	x.in.limited.prepareAnswer(x.r)
	if x.m.observe != nil {
		defer x.emit(replayEvent(result, stored.Stored.Status))
	}
	stored.Stored.WriteTo(x.w, x.r, x.m.replayHeader)
	stored.Free() // not after a panic of w, which may still have it
}

// replayEvent returns the Event of a replay.
func replayEvent(result *run.Result, status int) Event {
	e := eventOf(result, status)
	e.Age, e.Traceparent = max(0, time.Since(result.Record.Completed)), result.Record.Trace.String()
	return e
}

// eventOf returns the Event of a request whose result this is.
func eventOf(result *run.Result, status int) Event {
	return Event{
		Outcome: Outcome(result.Outcome), Status: status, Err: result.Err, Size: result.Size, Settle: Phase(result.Settle),
		FirstRunning: result.First.Running, FirstEnded: result.First.Ended,
	}
}

// restate gives the refusal the status of WithProblemStatus.
func (o *options) restate(a *refusal) {
	if status, ok := o.statuses[a.problem.Type]; ok {
		a.problem.Status, a.event.Status = status, status
	}
}

// refuse sends a problem.
func (x *exchange) refuse(a *refusal) {
	x.in.limited.prepareAnswer(x.r)
	x.m.restate(a)
	p := &a.problem
	defer x.emit(a.event) // even if a WithProblem panics
	if p.Retryable {
		FromContext(x.r.Context()).noteRefusal()
	}
	p.Instance = problem.Instance(x.m.guard.StorageKey(&x.in.run.Request))
	p.SetHeader(x.w.Header())
	if x.m.writeProblem != nil {
		x.m.writeProblem(x.w, x.r, Problem(p.Document))
		return
	}
	p.Write(x.w, x.r)
}

// emit completes the Event and calls the observer. It is called once for every request except those that WithObserver
// names.
func (x *exchange) emit(e Event) {
	if x.m.observe == nil {
		return
	}
	p := &x.in.run.Phases
	e.Claim, e.Wait, e.Journal, e.Handler = Phase(p.Claim), Phase(p.Wait), Phase(p.Journal), Phase(p.Operation)
	e.Key, e.Method, e.Pattern = x.m.guard.StorageKey(&x.in.run.Request), x.r.Method, x.pattern
	if p.Operation.Start.IsZero() {
		e.Pattern = x.r.Pattern
	}
	if x.in.doubt != nil {
		e.Err = errors.Join(e.Err, x.in.doubt)
	}
	e.Pending = errors.Is(e.Err, lock.ErrPending)
	x.m.observe(x.r.Context(), e)
}
