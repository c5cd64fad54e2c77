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
	// What a failure means for a customer or a client.
	Customer string `json:"-"`
	// Which texts say so; empty if correctness alone demands it.
	Texts []string `json:"-"`
	// What the check cannot be asked without.
	Needs Need `json:"-"`
	// The ids of earlier versions that are part of this check now.
	Aliases []string `json:"-"`
	// The only ones that have it asked, see -profile; nil: it is always asked.
	Profiles []string `json:"-"`

	ask func(*T)
}

func row(level Level, id, title string, needs Need, ask func(*T), texts ...string) Check {
	c := Check{ID: id, Level: level, Title: title, Needs: needs, Texts: texts, ask: ask}
	c.Customer = customers[slices.IndexFunc(customers, func(s [2]string) bool {
		return slices.ContainsFunc(strings.Fields(s[0]), c.Is)
	})][1]
	return c
}

// customers say what a failure means for a customer or a client: the first that has the check.
var customers = [][2]string{
	{"key/quoted key/bare key/escaped key/length-255 key/get", "some clients cannot use the API"},
	{"key/value-case key/length-distinct once/keys-differ scope/route mismatch/query mismatch/method " +
		"mismatch/path mismatch/null", "a second order gets the first one's response, and is never made"},
	{"mismatch/body mismatch/in-flight", "another order is charged as well, or never made"},
	{"mismatch/whitespace mismatch/number-spelling", "a client that writes its JSON anew is refused"},
	{"mismatch/status mismatch/in-flight-status", "the client retries what can never succeed"},
	{"scope/user mismatch/leak", "a customer sees what another has bought"},
	{"scope/*", "a customer cannot pay because another had the same key"},
	{"key/missing-not-run key/refused-not-run mismatch/not-run", "charged by a request that was refused"},
	{"key/missing*", "a client that forgets the key is not protected, and does not notice"},
	{"once/client-leaves-answered errors/failed-answered errors/validation errors/5xx-not-stored crash/answered " +
		"store/recovers", "the customer cannot pay"},
	{"errors/failed-not-success crash/no-wrong-success", "the customer believes to have paid, and has not"},
	{"replay/answered inflight/answer inflight/then-replay", "the client never learns what became of its payment"},
	{"replay/status replay/body* replay/error", "a wrong answer is taken for the outcome of the payment"},
	{"replay/* cache/*", "what a client reads from the response is wrong or missing after a retry"},
	{"inflight/time store/down-answered", "the second click hangs"},
	{"inflight/retry-after* errors/says-retry", "clients give up too early, or poll too often"},
	{"errors/problem key/echoed mismatch/bytes", "a client cannot tell what a response is about"},
	{"errors/no-store errors/key-not-shown", "refusals, and keys in them, are kept where they should not be"},
	{"cors/*", "the shop's page cannot pay, or cannot read what was paid"},
	{"*", "charged twice"},
}

// was has the ids of earlier versions, with white space between them.
func (c Check) was(aliases string) Check {
	c.Aliases = strings.Fields(aliases)
	return c
}

// of has the check asked by these profiles alone.
func (c Check) of(profiles ...string) Check {
	c.Profiles = profiles
	return c
}

// Is reports whether the pattern is an id of the check, or its beginning if it ends in *.
func (c Check) Is(pattern string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return slices.ContainsFunc(append(c.Aliases, c.ID), func(id string) bool {
		return pattern == id || isPrefix && strings.HasPrefix(id, prefix)
	})
}

// All returns the table, in the order in which the checks run.
func All() []Check {
	return slices.Concat(keyChecks, onceChecks, replayChecks, mismatchChecks, scopeChecks, inflightChecks,
		errorChecks, outageChecks, otherChecks, profileChecks)
}

// Find returns the check with the id, which may be one of an earlier version.
func Find(id string) (Check, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Check) bool { return c.Is(id) })
	if i < 0 || strings.HasSuffix(id, "*") {
		return Check{}, false
	}
	return all[i], true
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

	FieldNames     = "RFC 9110, section 5.1 (Field Names)"
	DateField      = "RFC 9110, section 6.6.1 (Date)"
	Encoding       = "RFC 9110, section 8.4 (Content-Encoding)"
	SafeMethods    = "RFC 9110, section 9.2.1 (Safe Methods)"
	RetryRequests  = "RFC 9110, section 9.2.2 (Idempotent Methods)"
	HeadMethod     = "RFC 9110, section 9.3.2 (HEAD)"
	Expect         = "RFC 9110, section 10.1.1 (Expect)"
	LocationField  = "RFC 9110, section 10.2.2 (Location)"
	RetryAfter     = "RFC 9110, section 10.2.3 (Retry-After)"
	AgeField       = "RFC 9111, section 5.1 (Age)"
	Caching        = "RFC 9111, section 5.2.2.5 (no-store)"
	MessageBody    = "RFC 9112, section 6 (Message Body)"
	Incomplete     = "RFC 9112, section 8 (Handling Incomplete Messages)"
	ProblemDetails = "RFC 9457, section 3 (The Problem Details JSON Object)"
	SFErrors       = "RFC 9651, section 1.1 (Intentionally Strict Processing)"
	SFParameters   = "RFC 9651, section 3.1.2 (Parameters)"
	SFStrings      = "RFC 9651, section 3.3.3 (Strings)"
	SFParse        = "RFC 9651, section 4.2 (Parsing Structured Fields)"
	CORS           = "WHATWG Fetch, section 3.2 (HTTP CORS protocol)"
	Stripe         = "Stripe, API reference, Idempotent requests"

	acp        = "Agentic Commerce Protocol 2026-04-17, RFC Agentic Checkout, section "
	ACP6       = acp + "6 (idempotency)"
	ACPBody    = acp + "6.2 (what the same request is)"
	ACPErrors  = acp + "6.5 (errors of the server)"
	UCPPayload = "Universal Commerce Protocol 2026-08, Message Signatures, Payload Matching"
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
	OtherURL
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
	"-other-url, another route of the service that takes the same request",
}

// missing says what the check needs and was not given, or nothing.
func (s *Session) missing(c Check) string {
	given := []bool{
		s.counts() || len(s.ids) > 0, s.counts(), s.Slow != nil, s.User2 != nil, s.Also != nil, s.Restart != "",
		s.StoreDown != "" && s.StoreUp != "", s.Fail != nil, s.Samples != nil, s.OtherURL != nil,
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
