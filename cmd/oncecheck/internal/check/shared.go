package check

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// shared is what several checks look at. Each part is asked when the first of them runs.
type shared struct {
	trials    map[string]trial
	departure *departure
	pairs     []pair
	mismatch  *mismatch
	inflight  *inflight
	failed    *failure
	outage    *outage
	crash     *crash

	unasked map[string]string // why one of them could not be asked
}

// once runs ask, a part that several checks look at, unless it has been run. If it could not be asked, no later check
// tries again.
func (t *T) once(name string, asked bool, ask func()) {
	if asked {
		return
	}
	if why, ok := t.s.shared.unasked[name]; ok {
		t.NotAsked("%s", why)
	}
	done := false
	defer func() {
		if !done {
			t.s.shared.unasked[name] = t.result.Sentence
		}
	}()
	ask()
	done = true
}

// slowness returns how long the server takes with -slow, or 0 without. It ends the check if that is too short for anything
// to happen meanwhile.
func (t *T) slowness() time.Duration {
	if t.s.Slow == "" {
		return 0
	}
	if t.s.slow == 0 {
		began := time.Now()
		t.First(t.s.request(t.s.operation()).Query(t.s.Slow))
		t.s.slow = time.Since(began)
	}
	if t.s.slow < 300*time.Millisecond {
		t.NotAsked("with -slow %q the server took only %v", t.s.Slow, t.s.slow.Round(time.Millisecond))
	}
	return t.s.slow
}

// meanwhile returns how long to wait until a slow request runs: enough for it to arrive, and early in its time, since what
// was measured may have been a slow moment of the machine.
func (t *T) meanwhile() time.Duration { return min(t.slowness()/3, 400*time.Millisecond) }

// inTime runs ask until it was in time: something happened while a request ran. On a busy machine that may take several
// tries. It ends the check after the third.
func (t *T) inTime(ask func() bool) {
	for range 3 {
		if ask() {
			return
		}
	}
	if t.s.Slow == "" {
		t.NotAsked("give -slow: three times no two of several requests at once were under way at the same time")
	}
	t.NotAsked("three times the first request had been answered before anything else could happen")
}

// during sends a request that takes long, and the others while it runs. It reports whether one of the others had been
// sent before the first was answered. Without -slow it sends all at one instant, and the first is the one that ran.
func (t *T) during(first ask.Request, others ...ask.Request) (one ask.Exchange, later []ask.Exchange, inTime bool) {
	if t.s.Slow == "" {
		all := theRunFirst(t.SendAll(append([]ask.Request{first}, others...)))
		return all[0], all[1:], ask.Overlapped(all) > 1
	}
	t.needParallel(len(others) + 1)
	wait := t.meanwhile()
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
	if t.s.Slow == "" {
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
	return first.Success() && e.Success() && bytes.Equal(first.Response.Body, e.Response.Body)
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
