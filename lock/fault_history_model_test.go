package lock_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The life of a key, for the linearizability checker: a claim takes it if it is free, and else tells whose it is. Every
// claim has a number, which is the note that it leaves, and the value that its lease settles.
//
// An operation without an answer may take effect at any time after its call, or never: it stays open to the end of the
// history, where it changes nothing that anybody has seen. The end of a lease that nobody has released is an operation
// of its own, which begins when the lease stops being valid, and also stays open.

type histCall struct {
	kind  histKind
	key   string
	claim int
}

type histKind string

const (
	histClaim   histKind = "claim"
	histRelease histKind = "release"
	histSettle  histKind = "settle"
	histExpire  histKind = "expire" // or the release of a claim whose caller has given up
)

type histAnswer struct {
	what  histOutcome
	claim int   // whose claim or value was met
	fence int64 // of a claim that was granted
}

type histOutcome string

const (
	histOK      histOutcome = "ok"      // granted, or released, or settled
	histHeld    histOutcome = "held"    // a claim met another's claim
	histSettled histOutcome = "settled" // a claim met a value
	histLost    histOutcome = "lost"    // a release, or a settle, met another's claim or value
	histUnknown histOutcome = "unknown"
)

// histState is what a key holds: nothing if claim is 0.
type histState struct {
	claim   int
	settled bool
	fence   int64 // the greatest that was granted
}

var histModel = porcupine.Model{
	Init: func() any { return histState{} },
	Step: func(state, call, answer any) (bool, any) {
		return state.(histState).step(call.(histCall), answer.(histAnswer))
	},
}

func (s histState) step(call histCall, answer histAnswer) (possible bool, next histState) {
	free, ours := s.claim == 0, s.claim == call.claim && !s.settled
	next = s
	switch {
	case call.kind == histClaim && free:
		next.claim, next.fence = call.claim, max(s.fence, answer.fence)
		return answer.what == histUnknown || answer.what == histOK && (answer.fence == 0 || answer.fence > s.fence), next
	case call.kind == histClaim && s.settled:
		return answer.what == histUnknown || answer.what == histSettled && answer.claim == s.claim, s
	case call.kind == histClaim:
		return answer.what == histUnknown || answer.what == histHeld && answer.claim == s.claim, s
	case call.kind == histSettle && (free || ours):
		next.claim, next.settled = call.claim, true
		return answer.what != histLost, next
	case ours:
		next.claim = 0
		return answer.what != histLost, next
	case free:
		return answer.what != histLost, s
	}
	return answer.what != histOK, s
}

// histOp is an operation from its call to its return, in any unit. One that is unknown does not return.
func histOp(client int, from, to int64, call histCall, answer histAnswer) porcupine.Operation {
	if answer.what == histUnknown {
		to = math.MaxInt64
	}
	return porcupine.Operation{ClientId: client, Call: from, Return: to, Input: call, Output: answer}
}

// histJudge has histories made until the search of one ends in its time, five at the most.
func histJudge(history func() []porcupine.Operation) (result porcupine.CheckResult, of []porcupine.Operation) {
	for range 5 {
		if result, of = histCheck(history()); result != porcupine.Unknown {
			break
		}
	}
	return result, of
}

// histCheck returns the operations on a key whose history is not linearizable, if there is one. If there is none and the
// search of one has not ended in its time, it returns those on that key.
func histCheck(ops []porcupine.Operation) (result porcupine.CheckResult, of []porcupine.Operation) {
	keys := map[string][]porcupine.Operation{}
	for _, op := range ops {
		key := op.Input.(histCall).key
		keys[key] = append(keys[key], op)
	}
	var undecided []porcupine.Operation
	for _, of := range keys {
		// Open operations make the search long. What nobody has seen may be left out: if the rest is linearizable, so
		// is the whole. Only a loss may need one of them, for nothing says whose claim was met.
		of = histBounded(of)
		result := porcupine.CheckOperationsTimeout(histModel, histSeen(of), 10*time.Second)
		if result != porcupine.Ok && slices.ContainsFunc(of, isLost) {
			result = porcupine.CheckOperationsTimeout(histModel, of, 20*time.Second)
		}
		switch result {
		case porcupine.Illegal:
			return porcupine.Illegal, of
		case porcupine.Unknown:
			undecided = of
		}
	}
	if undecided != nil {
		return porcupine.Unknown, undecided
	}
	return porcupine.Ok, nil
}

func isLost(op porcupine.Operation) bool { return op.Output.(histAnswer).what == histLost }

// histBounded closes each open operation that ends a claim at the first answer that shows the claim to be over: an operation
// that has had no effect until then never will, except for a Settle, which may still find the key free.
func histBounded(ops []porcupine.Operation) []porcupine.Operation {
	granted := map[int]int64{}
	for _, op := range ops {
		if call := op.Input.(histCall); call.kind == histClaim && op.Output.(histAnswer).what == histOK {
			granted[call.claim] = op.Return
		}
	}
	bounded := slices.Clone(ops)
	for i, op := range ops {
		call := op.Input.(histCall)
		since, ok := granted[call.claim]
		if !ok || op.Return < math.MaxInt64 || call.kind == histSettle {
			continue
		}
		for _, later := range ops {
			if later.Call > since && histOver(later, call.claim) {
				bounded[i].Return = min(bounded[i].Return, max(op.Call, later.Return))
			}
		}
	}
	return bounded
}

// histOver tells whether a claim that was granted before op cannot stand when op has returned.
func histOver(op porcupine.Operation, claim int) bool {
	call, answer := op.Input.(histCall), op.Output.(histAnswer)
	switch {
	case answer.what == histUnknown:
		return false
	case call.kind == histClaim:
		return answer.what != histHeld || answer.claim != claim
	}
	return call.claim == claim
}

// histSeen leaves out the claims that nobody knows to have arrived.
func histSeen(ops []porcupine.Operation) []porcupine.Operation {
	seen := map[int]bool{}
	for _, op := range ops {
		call, answer := op.Input.(histCall), op.Output.(histAnswer)
		seen[answer.claim] = true
		if answer.what != histUnknown {
			seen[call.claim] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(ops), func(op porcupine.Operation) bool {
		return !seen[op.Input.(histCall).claim]
	})
}

func histText(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	for _, op := range ops {
		call, answer, to := op.Input.(histCall), op.Output.(histAnswer), "..."
		if op.Return != math.MaxInt64 {
			to = time.Duration(op.Return).Round(time.Microsecond).String()
		}
		fmt.Fprintf(&text, "client %d: %s #%d on %s: %s", op.ClientId, call.kind, call.claim, call.key, answer.what)
		if answer.claim != 0 {
			fmt.Fprintf(&text, " #%d", answer.claim)
		}
		fmt.Fprintf(&text, " (%v to %s)\n", time.Duration(op.Call).Round(time.Microsecond), to)
	}
	return text.String()
}

// The checker accepts histories that may happen, and rejects those that must not.
func TestHistoryModel(t *testing.T) {
	t.Parallel()
	op := func(from, to int64, kind histKind, claim int, what histOutcome, met int) porcupine.Operation {
		return histOp(claim, from, to, histCall{kind, "k", claim}, histAnswer{what: what, claim: met})
	}
	numbered := func(from int64, claim int, fence int64) porcupine.Operation {
		return histOp(claim, from, from+1, histCall{histClaim, "k", claim}, histAnswer{what: histOK, fence: fence})
	}
	granted := op(0, 1, histClaim, 1, histOK, 0)
	var late []porcupine.Operation
	for n := range 40 {
		from := int64(10 * n)
		late = append(late, op(from, from+1, histClaim, n+1, histOK, 0),
			op(from+2, 0, histExpire, n+1, histUnknown, 0), op(from+3, from+4, histRelease, n+1, histOK, 0))
	}
	for name, test := range map[string]struct {
		want porcupine.CheckResult
		ops  []porcupine.Operation
	}{
		"one after the other": {porcupine.Ok, []porcupine.Operation{
			granted, op(2, 3, histRelease, 1, histOK, 0), op(4, 5, histClaim, 2, histOK, 0)}},
		"two holders": {porcupine.Illegal, []porcupine.Operation{
			granted, op(2, 3, histClaim, 2, histOK, 0)}},
		"two holders, if the claims overlap": {porcupine.Illegal, []porcupine.Operation{
			granted, op(0, 1, histClaim, 2, histOK, 0)}},
		"let go by the end of the lease": {porcupine.Ok, []porcupine.Operation{
			granted, op(5, 0, histExpire, 1, histUnknown, 0), op(4, 6, histClaim, 2, histOK, 0)}},
		"let go before the end of the lease": {porcupine.Illegal, []porcupine.Operation{
			granted, op(5, 0, histExpire, 1, histUnknown, 0), op(2, 4, histClaim, 2, histOK, 0)}},
		"many released at the end of their leases": {porcupine.Ok, late},
		"two holders, and many before them": {porcupine.Illegal, append(slices.Clip(late),
			op(400, 401, histClaim, 41, histOK, 0), op(402, 403, histClaim, 42, histOK, 0))},
		"an orphan": {porcupine.Ok, []porcupine.Operation{
			op(0, 0, histClaim, 1, histUnknown, 0), op(0, 0, histExpire, 1, histUnknown, 0),
			op(4, 5, histClaim, 2, histHeld, 1), op(6, 7, histClaim, 3, histOK, 0)}},
		"a holder that nobody has granted": {porcupine.Illegal, []porcupine.Operation{
			op(2, 3, histClaim, 2, histHeld, 1), op(4, 5, histClaim, 1, histOK, 0)}},
		"a claim that meets itself": {porcupine.Illegal, []porcupine.Operation{
			op(0, 1, histClaim, 1, histHeld, 1)}},
		"a release that comes late": {porcupine.Ok, []porcupine.Operation{
			granted, op(2, 0, histRelease, 1, histUnknown, 0),
			op(3, 4, histClaim, 2, histHeld, 1), op(5, 6, histClaim, 3, histOK, 0)}},
		"a release that did not happen": {porcupine.Illegal, []porcupine.Operation{
			granted, op(2, 3, histRelease, 1, histOK, 0), op(4, 5, histClaim, 2, histHeld, 1)}},
		"a release of another's claim": {porcupine.Illegal, []porcupine.Operation{
			granted, op(2, 0, histExpire, 1, histUnknown, 0), op(3, 4, histClaim, 2, histOK, 0),
			op(5, 6, histRelease, 1, histLost, 0), op(7, 8, histClaim, 3, histOK, 0)}},
		"told lost, though nobody else has come": {porcupine.Illegal, []porcupine.Operation{
			granted, op(2, 3, histRelease, 1, histLost, 0)}},
		"settled once": {porcupine.Ok, []porcupine.Operation{
			granted, op(2, 0, histSettle, 1, histUnknown, 0), op(4, 5, histClaim, 2, histSettled, 1)}},
		"settled over another's claim": {porcupine.Illegal, []porcupine.Operation{
			granted, op(2, 0, histExpire, 1, histUnknown, 0), op(3, 4, histClaim, 2, histOK, 0),
			op(5, 6, histSettle, 1, histOK, 0)}},
		"granted over a value": {porcupine.Illegal, []porcupine.Operation{
			granted, op(2, 3, histSettle, 1, histOK, 0), op(4, 5, histClaim, 2, histOK, 0)}},
		"a fence that falls": {porcupine.Illegal, []porcupine.Operation{
			numbered(0, 1, 8), op(2, 3, histRelease, 1, histOK, 0), numbered(4, 2, 7)}},
	} {
		if got, _ := histCheck(test.ops); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
