package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/onceguard/onceguard/internal/problem"
	"github.com/onceguard/onceguard/internal/reread"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// exchange is one request and its answer.
type exchange struct {
	m   *Middleware
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context // that r came with: an outer middleware may replace that of r

	in      input
	pattern string // of the handler's request, once the handler has returned

	*handling // nil before the handler is called: a replay saves its memory
}

// handling is what only the call of the handler needs.
type handling struct {
	exec    Execution
	product product
	body    reread.Body
}

// refusalOf returns the refusal that follows from a result without a response.
func (m *Middleware) refusalOf(result *run.Result) *refusal {
	a := m.refused(result.Kind, nil)
	p := &a.problem
	switch {
	case result.Kind == run.NotBegun:
		p.Detail = fmt.Sprintf(p.Detail, m.locker.TTL())
	case result.Kind == run.Reused:
		if ended := result.First.Ended; !ended.IsZero() {
			p.FirstEnded = &ended
		}
		p.FirstRunning = result.First.Running
	case result.Kind == run.NotKept:
		p.OriginalStatus = response.Status(result.Record.Body)
	case result.RetryAfter > 0:
		p.RetryAfter = result.RetryAfter
	}
	a.event = eventOf(result, p.Status)
	return a
}

// answer sends what follows from the result: the stored response, or a problem.
func (x *exchange) answer(result *run.Result) {
	if result.Kind != run.Stored {
		x.refuse(x.m.refusalOf(result))
		return
	}
	stored, err := response.Decode(result.Record.Body)
	if err != nil {
		refusal := x.m.refused(run.Unreadable, errors.Join(result.Err, err))
		if e := &refusal.event; result.Outcome == run.OutcomeLeaseLost {
			e.Outcome, e.Settle = LeaseLost, result.Settle
		}
		x.refuse(refusal)
		return
	}
	x.in.limited.prepareAnswer(x.r)
	if x.m.observe != nil {
		defer x.emit(replayEvent(result, stored.Status))
	}
	stored.WriteTo(x.w, x.r, x.m.replayHeader)
}

// refuse sends a problem.
func (x *exchange) refuse(a *refusal) {
	x.in.limited.prepareAnswer(x.r)
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
	e.Claim, e.Wait, e.Journal, e.Handler = p.Claim, p.Wait, p.Journal, p.Operation
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
