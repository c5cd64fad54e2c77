package check

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// Statuses are the statuses of the refusals.
type Statuses struct{ Missing, Invalid, Reused, InFlight []int }

// Draft07 returns the statuses of the draft.
func Draft07() Statuses {
	return Statuses{Missing: []int{400}, Invalid: []int{400}, Reused: []int{422}, InFlight: []int{409}}
}

// has reports whether the response has one of the statuses.
func has(statuses []int, e ask.Exchange) bool {
	return e.Response != nil && slices.Contains(statuses, e.Response.Status)
}

// isInFlight reports whether the response says that an earlier try still runs.
func (s Statuses) isInFlight(e ask.Exchange) bool {
	return has(s.InFlight, e) && e.Response.Header.Get("X-Should-Retry") != "false" && !isReplay(e.Response)
}

// mayChange reports whether the same request may get another answer later.
func (s Statuses) mayChange(e ask.Exchange) bool {
	if e.Response == nil {
		return !errors.Is(e.Err, ask.ErrBudget)
	}
	switch e.Response.Header.Get("X-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	return s.isInFlight(e) || !isReplay(e.Response) && (isBusy(e) || has([]int{408, 423, 425, 500}, e))
}

// isBusy reports whether the server says that it has no time now.
func isBusy(e ask.Exchange) bool {
	return has([]int{429, 502, 503, 504}, e) && e.Response.Header.Get("X-Should-Retry") != "false"
}

// isRefusal reports whether the client was told that it is at fault.
func isRefusal(e ask.Exchange) bool {
	return e.Response != nil && e.Response.Status >= 400 && e.Response.Status < 500
}

func successes(exchanges ...ask.Exchange) (n int) {
	for _, e := range exchanges {
		if e.Success() {
			n++
		}
	}
	return n
}

// isReplay reports whether the response says that it is a replay.
func isReplay(r *ask.Response) bool { return replayHeader(r.Header) != "" }

// replayHeader returns the name of the header that says so, or nothing.
func replayHeader(h http.Header) string {
	for name, values := range h {
		lower := strings.ToLower(name)
		isMark := strings.Contains(lower, "idempot") && strings.Contains(lower, "repl")
		if isMark && !slices.Contains([]string{"false", "0", ""}, strings.ToLower(values[0])) {
			return name
		}
	}
	return ""
}

// sameBody reports whether both are successes with one body.
func sameBody(first, e ask.Exchange) bool {
	return first.Success() && e.Success() && bytes.Equal(first.Response.Body, e.Response.Body)
}

// twoBodies returns two successes with different bodies, or nothing.
func twoBodies(answers []ask.Exchange) []ask.Exchange {
	won := slices.IndexFunc(answers, ask.Exchange.Success)
	for _, e := range answers {
		if e.Success() && !sameBody(answers[won], e) {
			return []ask.Exchange{answers[won], e}
		}
	}
	return nil
}

// statuses says which statuses are expected.
func statuses(list []int) string {
	words := make([]string, len(list))
	for i, status := range list {
		words[i] = strconv.Itoa(status)
	}
	return strings.Join(words, " or ")
}
