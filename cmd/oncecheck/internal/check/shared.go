package check

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// memo returns a part that several checks look at. It is asked when the first of them runs. If it could not be asked, no later
// check tries again.
func memo[P any](t *T, name string, ask func() P) P {
	switch known := t.s.parts[name].(type) {
	case P:
		return known
	case error:
		t.NotAsked("%v", known)
	}
	defer func() {
		if t.s.parts[name] == nil { // ask has ended the check
			t.s.parts[name] = errors.New(t.result.Sentence)
		}
	}()
	part := ask()
	t.s.parts[name] = part
	return part
}

// slowQuery returns the first query of -slow, or nothing.
func (t *T) slowQuery() string { return strings.Join(t.s.Slow[:min(1, len(t.s.Slow))], "") }

// slowness returns how long the server takes with the query of -slow, or 0 without. It ends the check if that is too short for
// anything to happen meanwhile.
func (t *T) slowness(query string) time.Duration {
	if query == "" {
		return 0
	}
	if t.s.slow[query] == 0 {
		began := time.Now()
		t.First(t.s.request(t.s.operation()).Query(query))
		t.s.slow[query] = time.Since(began)
	}
	if t.s.slow[query] < 300*time.Millisecond {
		t.NotAsked("with -slow %q the server took only %v", query, t.s.slow[query].Round(time.Millisecond))
	}
	return t.s.slow[query]
}

// meanwhile returns how long to wait until a slow request runs: enough for it to arrive, and early in its time, since what
// was measured may have been a slow moment of the machine.
func (t *T) meanwhile(query string) time.Duration {
	return min(t.slowness(query)/3, 400*time.Millisecond)
}

// inTime runs ask until it was in time: something happened while a request ran. On a busy machine that may take several
// tries. It ends the check after the sixth.
func (t *T) inTime(ask func() bool) {
	for range 6 {
		if ask() {
			return
		}
	}
	if t.s.Slow == nil {
		t.NotAsked("give -slow: six times no two of several requests at once were under way at the same time")
	}
	t.NotAsked("six times the first request had been answered before anything else could happen")
}

// during sends a request that takes long, and the others while it runs. It reports whether one of the others had been
// sent before the first was answered. Without -slow it sends all at one instant, and the first is the one that ran.
func (t *T) during(first ask.Request, others ...ask.Request) (one ask.Exchange, later []ask.Exchange, inTime bool) {
	if t.s.Slow == nil {
		all := theRunFirst(t.SendAll(append([]ask.Request{first}, others...)))
		return all[0], all[1:], ask.Overlapped(all) > 1
	}
	t.needParallel(len(others) + 1)
	wait := t.meanwhile(t.slowQuery())
	sent, ended := make(chan struct{}), make(chan ask.Exchange, 1)
	first.Note, first.Runs = "runs", true
	go func() { ended <- t.s.Client.DoNotify(t.ctx, first, func() { close(sent) }) }()
	<-sent
	err := pause(t.ctx, wait)
	for i := range others {
		others[i].Note, others[i].AtOnce = "while the first runs", true
	}
	later = t.s.Client.Together(t.ctx, others)
	one = <-ended
	t.keep(one)
	t.keep(later...)
	if err != nil {
		t.NotAsked("%v", err)
	}
	inTime = slices.ContainsFunc(later, func(e ask.Exchange) bool { return !e.Sent.IsZero() && e.Sent.Before(one.Ended) })
	all := theRunFirst(append([]ask.Exchange{one}, later...))
	return all[0], all[1:], inTime
}

// theRunFirst puts the exchange in front that was a success and no replay: on a busy machine another than the one that was
// sent first may run.
func theRunFirst(all []ask.Exchange) []ask.Exchange {
	ran := slices.IndexFunc(all, func(e ask.Exchange) bool { return e.Success() && !isReplay(e.Response) })
	if ran > 0 {
		x, y := &all[0].Request, &all[ran].Request
		x.Note, x.Runs, x.AtOnce, y.Note, y.Runs, y.AtOnce = y.Note, y.Runs, y.AtOnce, x.Note, x.Runs, x.AtOnce
		all[0], all[ran] = all[ran], all[0]
	}
	return all
}

// sayAtOnce says how a check that holds was asked, if -slow was not given.
func (t *T) sayAtOnce() {
	if t.s.Slow == nil {
		t.Say("tried by several at once: -slow makes sure that the first still runs")
	}
}

// isReplay reports whether the response says that it is a replay.
func isReplay(r *ask.Response) bool { return replayHeader(r) != "" }

// replayHeader returns the name of the header that says so, or nothing.
func replayHeader(r *ask.Response) string {
	for name, values := range r.Header {
		lower := strings.ToLower(name)
		if strings.Contains(lower, "idempot") && strings.Contains(lower, "repl") && len(values) > 0 &&
			!strings.EqualFold(values[0], "false") && values[0] != "0" && values[0] != "" {
			return name
		}
	}
	return ""
}

// sameBody reports whether both are successes with one body.
func sameBody(first, e ask.Exchange) bool {
	return first.Success() && e.Success() && first.Response.SameBody(e.Response)
}

// isStored reports whether e, which is another request than first, was answered by the stored response of first. It ends
// the check if that cannot be told from a response of its own.
func (t *T) isStored(first, e ask.Exchange) bool {
	switch {
	case !first.Success() || !e.Success():
		return false
	case len(t.s.ids) > 0:
		return t.s.ids.same(first.Response, e.Response)
	case isReplay(e.Response):
		return true
	case !sameBody(first, e):
		return false
	}
	t.NotAsked("the responses have no id by which a stored one could be told from another: %s", e)
	return false
}

// statuses says which statuses are expected, each once.
func statuses(list []int) string {
	var words []string
	for i, status := range list {
		if !slices.Contains(list[:i], status) {
			words = append(words, strconv.Itoa(status))
		}
	}
	return strings.Join(words, " or ")
}
