// Package check asks. Its table has a row for each check: what holds, how strongly, what a failure means for a customer,
// and the function that asks; the comment of a row says what is sent and compared. What cannot be seen is not asked.
package check

import (
	"slices"
	"strings"
)

// Level is how strongly a check is meant.
type Level string

const (
	// Must is a rule whose breach costs a customer money or shows them somebody else's data, or that breaks a MUST of a
	// text. A failure always counts.
	Must Level = "MUST"
	// Should is a rule that a text recommends, or that clients rely on. A failure counts with -strict.
	Should Level = "SHOULD"
	// Advice has no text. A failure never counts.
	Advice Level = "ADVICE"
)

// Check is one row of the table. The ids are stable: users keep them in files of known failures.
type Check struct {
	ID    string `json:"id"`
	Level Level  `json:"level"`
	Title string `json:"title"` // what holds if the check holds
	// Which texts say so; empty if correctness alone demands it.
	Texts []string `json:"-"`
	// What the check cannot be asked without.
	Needs Need `json:"-"`
	// The only ones that have it asked, see -profile; nil: it is always asked.
	Profiles []string `json:"-"`

	ask func(*T)
}

func row(level Level, id, title string, needs Need, ask func(*T), texts ...string) Check {
	return Check{ID: id, Level: level, Title: title, Needs: needs, Texts: texts, ask: ask}
}

// Customer says what a failure means for a customer or a client.
func (c Check) Customer() string {
	group, _, _ := strings.Cut(c.ID, "/")
	return map[string]string{
		"key":      "a client cannot use the API, or is not protected and does not notice",
		"once":     "charged twice",
		"replay":   "a wrong answer is taken for the outcome of the payment",
		"mismatch": "another order is charged as well, or never made",
		"scope":    "a customer sees what another has bought, or cannot pay because another had the same key",
		"inflight": "the second click is charged, hangs, or never gets an answer",
		"errors":   "the customer cannot pay, or believes to have paid",
		"store":    "charged twice, or cannot pay, after an outage of the store",
		"crash":    "charged twice, or cannot pay, after a crash",
		"load":     "charged twice, or gets the response of another order",
	}[group]
}

// of has the check asked by these profiles alone.
func (c Check) of(profiles ...string) Check {
	c.Profiles = profiles
	return c
}

// Is reports whether the pattern is an id of the check, or its beginning if it ends in *.
func (c Check) Is(pattern string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return pattern == c.ID || isPrefix && strings.HasPrefix(c.ID, prefix)
}

// All returns the table, in the order in which the checks run.
func All() []Check {
	return slices.Concat(keyChecks, onceChecks, replayChecks, mismatchChecks, scopeChecks, inflightChecks,
		errorChecks, outageChecks, otherChecks, profileChecks)
}

// The places in texts that say what is checked.
const (
	draft   = "draft-ietf-httpapi-idempotency-key-header-07, section "
	Draft21 = draft + "2.1 (Syntax)"
	Draft22 = draft + "2.2 (Uniqueness of Idempotency Key)"
	Draft24 = draft + "2.4 (Idempotency Fingerprint)"
	Draft26 = draft + "2.6 (Idempotency Enforcement Scenarios)"
	Draft27 = draft + "2.7 (Error Scenarios)"
	Draft5  = draft + "5 (Security Considerations)"

	RetryRequests = "RFC 9110, section 9.2.2 (Idempotent Methods)"
	LocationField = "RFC 9110, section 10.2.2 (Location)"
	Incomplete    = "RFC 9112, section 8 (Handling Incomplete Messages)"
	SFStrings     = "RFC 9651, section 3.3.3 (Strings)"
	Stripe        = "Stripe, API reference, Idempotent requests"

	acp     = "Agentic Commerce Protocol 2026-04-17, RFC Agentic Checkout, section "
	ACPBody = acp + "6.2 (what the same request is)"
)

// Need is a set of what only the user can give.
type Need int

const (
	// A way to see how often something happened: -effects, or ids in the responses.
	Effects Need = 1 << iota
	// -effects: what happened is counted, also if nobody saw the response.
	Counted
	Slow
	User2
	Also
	Restart
	Store
	Fail
	Samples
)

// Ways say how each need is given.
var Ways = []string{
	"-effects: the responses have no id by which a second run could be told from a replay",
	"-effects: ids in responses do not tell of a run whose response nobody has seen",
	"-slow, a query that makes the server take about a second",
	"-H2, the headers of a second user",
	"-also, the URL of a second instance of the same service",
	"-restart, a command that kills the server and starts it again",
	"-store-down and -store-up, commands that stop and start what the server stores keys in",
	"-fail, a query that makes the server fail with a 5xx or break the connection",
	"-sample, a query whose response is of another kind",
}

// missing says what the check needs and was not given, or nothing.
func (s *Session) missing(c Check) string {
	given := []bool{
		s.counts() || len(s.ids) > 0, s.counts(), s.Slow != nil, s.User2 != nil, s.Also != nil, s.Restart != "",
		s.StoreDown != "" && s.StoreUp != "", s.Fail != nil, s.Samples != nil,
	}
	for i, way := range Ways {
		switch {
		case given[i] || c.Needs&(1<<i) == 0:
		case i == 0 && s.noIDs != "":
			return s.noIDs
		default:
			return "give " + way
		}
	}
	return ""
}
