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
	Verdict  Verdict `json:"verdict"`
	Sentence string  `json:"sentence,omitempty"` // what was seen, or why nothing could be

	// Of a failure:
	Want  string         `json:"want,omitempty"`
	Got   string         `json:"got,omitempty"`
	Shown []ask.Exchange `json:"-"` // that show it, in the order in which they were sent
}

// T is what a check has while it runs, like testing.T: Failf and NotAsked end the check.
type T struct {
	s      *Session
	ctx    context.Context
	sent   []ask.Exchange
	result Result
}

// Run runs the checks in order. It calls begin before each, and hands each result to report. When ctx is done, it returns
// without a result of the check that runs.
func (s *Session) Run(ctx context.Context, checks []Check, begin func(Check), report func(Result)) {
	for _, c := range checks {
		begin(c)
		t := &T{s: s, ctx: ctx, result: Result{Check: c, Verdict: Held}}
		if missing := s.missing(c); missing != "" {
			t.result.Verdict, t.result.Sentence = NotAsked, missing
		} else {
			t.do(c.ask)
		}
		if ctx.Err() != nil {
			return
		}
		s.secrets.hideIn(&t.result)
		report(t.result)
	}
}

// do runs a part in a goroutine of its own, so that it can end anywhere.
func (t *T) do(part func(*T)) {
	var done sync.WaitGroup
	done.Go(func() { part(t) })
	done.Wait()
}

// missing says what the check needs and was not given, or nothing.
func (s *Session) missing(c Check) string {
	given := map[Need]bool{
		Effects: s.countsEffects() || len(s.ids) > 0, Counted: s.countsEffects(), Slow: s.Slow != nil, User2: len(s.User2) > 0,
		Also: s.Also != nil, Restart: s.Restart.Given(), Store: s.StoreDown.Given() && s.StoreUp.Given(), Fail: s.Fail != nil,
		Samples: s.Samples != nil, OtherURL: s.OtherURL != nil,
	}
	for _, need := range c.Needs {
		if need == Effects && !given[need] && s.noIDs != "" {
			return s.noIDs
		}
		if !given[need] {
			return string(need)
		}
	}
	return ""
}

// Failf ends the check: it was not what it should be. It shows what the check has sent, or only what Show was given.
func (t *T) Failf(want, format string, args ...any) {
	t.result.Verdict, t.result.Want, t.result.Got = Failed, Printable(want), Printable(fmt.Sprintf(format, args...))
	t.result.Sentence = t.result.Got + ", want " + t.result.Want
	if t.result.Shown == nil {
		t.result.Shown = slices.Clone(t.sent)
	}
	runtime.Goexit()
}

// NotAsked ends the check without a verdict.
func (t *T) NotAsked(format string, args ...any) {
	t.result.Verdict, t.result.Sentence, t.result.Shown = NotAsked, Printable(fmt.Sprintf(format, args...)), nil
	runtime.Goexit()
}

// failIf is Failf if the condition holds.
func (t *T) failIf(wrong bool, want, format string, args ...any) {
	if wrong {
		t.Failf(want, format, args...)
	}
}

// skipIf is NotAsked if the condition holds.
func (t *T) skipIf(unseen bool, format string, args ...any) {
	if unseen {
		t.NotAsked(format, args...)
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

// Show is called before Failf with the exchanges that show the failure.
func (t *T) Show(exchanges ...ask.Exchange) { t.result.Shown = exchanges }

// Say sets the sentence of a check that holds.
func (t *T) Say(format string, args ...any) {
	t.result.Sentence = Printable(fmt.Sprintf(format, args...))
}

// Once fails the check unless there was exactly one effect.
func (t *T) Once(n int) {
	t.failIf(n != 1, "one effect", "%s", effects(n))
}

// AtMostOnce fails the check if there was more than one effect.
func (t *T) AtMostOnce(n int) {
	t.failIf(n > 1, "at most one effect", "%s", effects(n))
}

// Success fails the check unless the exchange is a success.
func (t *T) Success(e ask.Exchange) {
	t.failIf(!e.Success(), "a success", "%s", e)
}

// Same fails the check unless both exchanges are successes with one body.
func (t *T) Same(first, again ask.Exchange) {
	t.failIf(!sameBody(first, again), "the first's response", "%s", again)
}

// Send sends a request.
func (t *T) Send(r ask.Request) ask.Exchange { return t.keep(t.s.Client.Do(t.ctx, r))[0] }

// SendAll sends the requests at the same instant.
func (t *T) SendAll(requests []ask.Request) []ask.Exchange {
	t.needParallel(len(requests))
	for i := range requests {
		requests[i].AtOnce = true
	}
	return t.keep(t.s.Client.Together(t.ctx, requests)...)
}

// needParallel ends the check if so many requests may not be under way at a time.
func (t *T) needParallel(n int) {
	t.skipIf(n > t.s.Client.Parallel(), "%d requests at once need -parallel %d", n, n)
}

// keep remembers exchanges for a failure, and ends the check if the run may ask no more.
func (t *T) keep(exchanges ...ask.Exchange) []ask.Exchange {
	for _, e := range exchanges {
		t.skipIf(errors.Is(e.Err, ask.ErrBudget) || errors.Is(e.Err, context.Canceled), "%v", e.Err)
	}
	t.sent = append(t.sent, exchanges...)
	return exchanges
}

// SendPatiently sends a request, and again while the server is too busy for it.
func (t *T) SendPatiently(r ask.Request) ask.Exchange { return t.keep(t.s.sendPatiently(t.ctx, r))[0] }

// First sends the first request of an operation. Without a success there is nothing to repeat.
func (t *T) First(r ask.Request) ask.Exchange {
	e := t.SendPatiently(r)
	t.skipIf(!e.Success(), "the first request was no success: %s", e)
	return e
}

// Stored sends the first request of an operation, and repeats it until its key has come to rest.
func (t *T) Stored(r ask.Request) ask.Exchange {
	first := t.First(r)
	t.Rest(r)
	return first
}

// Settle repeats the request until it is answered: with a success, or with a refusal that is no invitation to try again.
// The last exchange is returned; it may be none of these if the patience is over.
func (t *T) Settle(r ask.Request) ask.Exchange {
	return t.keep(t.s.repeatWhile(t.ctx, r, t.s.Patience, t.mayChange))[0]
}

// SettleAnswered is [T.Settle] for a request that was answered before, so that it runs no longer. It is no more patient than
// [T.Rest].
func (t *T) SettleAnswered(r ask.Request) ask.Exchange { return t.rest(r, t.mayChange) }

// Rest repeats a request that was answered until its key has come to rest: until it is no longer refused as in flight. Some
// servers send a response first and store it a moment later. What is asked of the key before that says nothing.
func (t *T) Rest(r ask.Request) ask.Exchange {
	return t.rest(r, func(e ask.Exchange) bool {
		return t.s.Statuses.isInFlight(e) || isBusy(e) || has([]int{http.StatusLocked, http.StatusTooEarly}, e)
	})
}

// rest waits for a moment only if a key did not come to rest before: then none does.
func (t *T) rest(r ask.Request, goOn func(ask.Exchange) bool) ask.Exchange {
	limit := t.s.Patience
	if t.s.restless {
		limit = min(limit, 2*time.Second)
	}
	e := t.s.repeatWhile(t.ctx, r, limit, goOn)
	t.s.restless = t.s.restless || t.s.Statuses.isInFlight(e)
	return t.keep(e)[0]
}

// mayChange reports whether the answer may become another, and remembers it as a refusal of a request in flight.
func (t *T) mayChange(e ask.Exchange) bool {
	goOn := t.s.Statuses.mayChange(e)
	if goOn {
		t.refused("in flight", e)
	}
	return goOn
}

// Pause waits.
func (t *T) Pause(d time.Duration) {
	if err := pause(t.ctx, d); err != nil {
		t.NotAsked("%v", err)
	}
}
