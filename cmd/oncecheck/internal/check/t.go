package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// Verdict is how a check ended.
type Verdict string

const (
	Held     Verdict = "held"
	Failed   Verdict = "failed"
	NotAsked Verdict = "not asked"
)

// Result is the outcome of a check.
type Result struct {
	Check
	Verdict Verdict `json:"verdict"`
	// What was seen, or why nothing could be.
	Sentence string `json:"sentence,omitempty"`

	// Of a failure:
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
	// The exchanges that show it, in the order in which they were sent.
	Shown []ask.Exchange `json:"-"`
}

// T is what a check has while it runs, like testing.T: fail and skip end the check.
type T struct {
	*Session
	ctx    context.Context
	sent   []ask.Exchange
	result Result
}

// Run runs the checks in order. It calls begin before each, and hands each result to report. When ctx is done, it returns
// without a result of the check that runs.
func (s *Session) Run(ctx context.Context, checks []Check, begin func(Check), report func(Result)) {
	for _, c := range checks {
		begin(c)
		r := Result{Verdict: NotAsked, Sentence: s.missing(c)}
		if r.Sentence == "" {
			r = s.part(ctx, c.ask)
		}
		if ctx.Err() != nil {
			return
		}
		r.Check = c
		s.hideIn(&r)
		report(r)
	}
}

// part runs a part in a goroutine of its own, so that it can end anywhere.
func (s *Session) part(ctx context.Context, ask func(*T)) Result {
	t := &T{Session: s, ctx: ctx, result: Result{Verdict: Held}}
	var done sync.WaitGroup
	done.Go(func() { ask(t) })
	done.Wait()
	return t.result
}

// fail ends the check: it was not what it should be. It shows what the check has sent, or only what show was given.
func (t *T) fail(want, format string, args ...any) {
	r := &t.result
	r.Verdict, r.Want, r.Got = Failed, Printable(want), Printable(fmt.Sprintf(format, args...))
	r.Sentence = r.Got + ", want " + r.Want
	if r.Shown == nil {
		r.Shown = slices.Clone(t.sent)
	}
	runtime.Goexit()
}

// skip ends the check without a verdict.
func (t *T) skip(format string, args ...any) {
	t.result = Result{Verdict: NotAsked, Sentence: Printable(fmt.Sprintf(format, args...))}
	runtime.Goexit()
}

// failIf is fail if the condition holds.
func (t *T) failIf(wrong bool, want, format string, args ...any) {
	if wrong {
		t.fail(want, format, args...)
	}
}

// skipIf is skip if the condition holds.
func (t *T) skipIf(unseen bool, format string, args ...any) {
	if unseen {
		t.skip(format, args...)
	}
}

// Printable returns text on one line, without what a terminal would act on: it may be what a server sent.
func Printable(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.IsSpace(c):
			return ' '
		case !unicode.IsPrint(c):
			return '.'
		}
		return c
	}, s)
}

// show is called before fail with the exchanges that show the failure.
func (t *T) show(exchanges ...ask.Exchange) { t.result.Shown = exchanges }

// say sets the sentence of a check that holds.
func (t *T) say(format string, args ...any) {
	t.result.Sentence = Printable(fmt.Sprintf(format, args...))
}

// success fails the check unless the exchange is a success.
func (t *T) success(e ask.Exchange) { t.failIf(!e.Success(), "a success", "%s", e) }

// same fails the check unless both exchanges are successes with one body.
func (t *T) same(first, again ask.Exchange) {
	t.failIf(!sameBody(first, again), "the first's response", "%s", again)
}

// send sends a request.
func (t *T) send(r ask.Request) ask.Exchange { return t.keep(t.Client.Do(t.ctx, r))[0] }

// sendAll sends the requests at the same instant.
func (t *T) sendAll(requests ...ask.Request) []ask.Exchange {
	t.needParallel(len(requests))
	for i := range requests {
		requests[i].AtOnce = true
	}
	return t.keep(t.Client.Together(t.ctx, requests)...)
}

// needParallel ends the check if so many requests may not be under way at a time.
func (t *T) needParallel(n int) {
	t.skipIf(n > t.Client.Parallel, "%d requests at once need -parallel %d", n, n)
}

// keep remembers exchanges for a failure, and ends the check if the run may ask no more.
func (t *T) keep(exchanges ...ask.Exchange) []ask.Exchange {
	for _, e := range exchanges {
		over := errors.Is(e.Err, ask.ErrBudget) || errors.Is(e.Err, context.Canceled)
		t.skipIf(over, "%v", e.Err)
	}
	t.sent = append(t.sent, exchanges...)
	return exchanges
}

// firstWait is the pause before something is done again. It doubles, up to a second.
const firstWait = 50 * time.Millisecond

// until does something until it is done, and for no longer than the limit.
func (t *T) until(limit time.Duration, isDone func() bool) {
	began := time.Now()
	for wait := firstWait; !isDone() && time.Since(began)+wait <= limit; wait = min(2*wait, time.Second) {
		t.pause(wait)
	}
}

// repeat sends a request until its answer is another, and for no longer than the limit. It returns the last exchange.
func (t *T) repeat(r ask.Request, limit time.Duration, goOn func(ask.Exchange) bool) (e ask.Exchange) {
	began := time.Now()
	t.until(limit, func() bool {
		waited := time.Since(began)
		e = t.Client.Do(t.ctx, r)
		e.Request.Waited = waited
		return !goOn(e)
	})
	return e
}

// patient sends a request, and again while the server is too busy for it: a rate limit, or a slow machine, is no fault.
func (t *T) patient(r ask.Request) ask.Exchange { return t.keep(t.repeat(r, t.Patience, isBusy))[0] }

// first sends the first request of an operation. Without a success there is nothing to repeat.
func (t *T) first(r ask.Request) ask.Exchange {
	e := t.patient(r)
	t.skipIf(!e.Success(), "the first request was no success: %s", e)
	return e
}

// stored sends the first request of an operation, and repeats it until its key has come to rest.
func (t *T) stored(r ask.Request) ask.Exchange {
	first := t.first(r)
	t.rest(r)
	return first
}

// settle repeats the request until it is answered: with a success, or with a refusal that is no invitation to try again.
// The last exchange is returned; it may be none of these if the patience is over.
func (t *T) settle(r ask.Request) ask.Exchange {
	return t.keep(t.repeat(r, t.Patience, t.Statuses.mayChange))[0]
}

// rest repeats a request that was answered until its key has come to rest: until it is no longer refused as in flight. Some
// servers send a response first and store it a moment later. What is asked of the key before that says nothing.
func (t *T) rest(r ask.Request) ask.Exchange {
	return t.restWhile(r, func(e ask.Exchange) bool {
		return t.Statuses.isInFlight(e) || isBusy(e) || has([]int{http.StatusLocked, http.StatusTooEarly}, e)
	})
}

// restWhile waits for a moment only if a key did not come to rest before: then none does.
func (t *T) restWhile(r ask.Request, goOn func(ask.Exchange) bool) ask.Exchange {
	limit := t.Patience
	if t.restless {
		limit = min(limit, 2*time.Second)
	}
	e := t.repeat(r, limit, goOn)
	t.restless = t.restless || t.Statuses.isInFlight(e)
	return t.keep(e)[0]
}

// pause waits.
func (t *T) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.skip("%v", context.Cause(t.ctx))
	}
}
