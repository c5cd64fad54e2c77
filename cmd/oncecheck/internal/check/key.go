package check

import (
	"net/http"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// keyChecks has the checks of how a key is written, and of what it means. A request with each spelling is sent twice.
var keyChecks = []Check{
	// Idempotency-Key: "8e03…": the first is a success.
	row(Must, "key/quoted", "a key in double quotes is accepted",
		0, keyAccepted(accepted[0]), Draft21, SFStrings),
	// Idempotency-Key: 8e03…: the first is a success.
	row(Should, "key/bare", "a key without quotes is accepted",
		0, keyAccepted(accepted[1]), Stripe),
	// The key contains \" and \\: the first is a success.
	row(Should, "key/escaped", `a key with \" and \\ is accepted`,
		0, keyAccepted(accepted[2]), Draft21, SFStrings),
	// The key has 255 characters (with the quotes, where the server counts these): a success.
	row(Should, "key/length-255", "a key of 255 characters is accepted",
		0, keyLength255, Stripe),
	// One body under two keys of 250 characters that differ in the last one, and under two of 300 if the server takes
	// these: two effects, unless one is refused. Not asked if equal requests are one to the service.
	row(Must, "key/length-distinct", "long keys that differ at their end are two keys",
		Effects, keyLengthDistinct, Draft22),
	// The key has 4,000 characters: no 5xx, and at most one effect.
	row(Should, "key/too-long", "a key of 4,000 characters is refused with a 4xx, or protects",
		Effects, keyTooLong, Stripe),
	// The same key with and without quotes is one key, or one of the two is refused; parameters ("8e03…";a=1) are ignored.
	// Each of these gets the status for a malformed key (400): "", no value at all, \x in the key, no closing quote, é,
	// two keys in one line, and in two lines.
	row(Should, "key/spelling", "a key is read as the draft defines it",
		Effects, keySpelling, Draft21, SFStrings, "RFC 9651, section 4.2 (Parsing Structured Fields)", "RFC 9651, section 3.1.2 (Parameters)"),
	// Each spelling, but for the empty ones: refused, or at most one effect. A server that runs requests without any key
	// must not do so here.
	row(Must, "key/never-unprotected", "a request with a malformed key is refused, or protected",
		Effects, keyNeverUnprotected, "RFC 9651, section 1.1 (Intentionally Strict Processing)"),
	// If both tries with one spelling are refused (4xx), nothing has happened.
	row(Must, "key/refused-not-run", "a request whose key is refused does not run",
		Counted, keyRefusedNotRun, Draft27),
	// One body under two keys that are the same but for the case of one letter: two effects. Not asked if the server
	// refuses such keys, or if equal requests are one to it.
	row(Must, "key/value-case", "keys that differ in their case are two keys",
		Effects, func(t *T) { keyPair(t, 40, "-a", "-A") }, SFStrings),
	// GET with a fresh key has the status of a GET without; a POST with that key then runs.
	row(Should, "key/get", "a GET with a key is answered as one without, and does not use the key up",
		0, keyGet, "RFC 9110, section 9.2.1 (Safe Methods)"),
	// A request without a key: if it is refused, with the status for a missing key. Not asked if it runs: then the key is
	// optional here.
	row(Should, "key/missing", "where a key is required, a request without one gets 400",
		0, keyMissing, Draft27),
	// A request without a key is no success.
	row(Advice, "key/missing-runs", "a request without a key is refused",
		0, keyMissingRuns, Draft27),
	// A request without a key, if refused, has no effect.
	row(Must, "key/missing-not-run", "a request that is refused because it has no key does not run",
		Counted, keyMissingNotRun, Draft27),
}

// A spelling is a name, and one or several header lines with a key in place of {{key}}.
type spelling []string

var (
	accepted = []spelling{
		{"a key in quotes", quoted}, {"a key without quotes", bare}, {`a key with \" and \\`, `"a\"b\\c-{{key}}"`},
	}
	parameters = spelling{"a key with parameters", quoted + ";a=1"}
	tooLong    = spelling{"a key of 4,000 characters", `"{{key}}` + strings.Repeat("k", 4000-36) + `"`}
	// A server may take these for no key.
	empties   = []spelling{{`an empty key ("")`, `""`}, {"no value", ""}}
	malformed = []spelling{
		{`\x in the key`, `"a\x{{key}}"`}, {"no closing quote", `"{{key}}`}, {"é in the key", `"é{{key}}"`},
		{"two keys in one line", `"a-{{key}}", "b-{{key}}"`},
		{"two keys in two lines", `"a-{{key}}"`, `"b-{{key}}"`},
	}
	spellings = slices.Concat(accepted, []spelling{parameters, tooLong}, malformed)
)

// spelled returns the request with its key in the spelling.
func (s *Session) spelled(r ask.Request, how spelling) ask.Request {
	r = r.Without(s.KeyHeader)
	for _, line := range how[1:] {
		r.Header = append(r.Header, ask.Field{Name: s.KeyHeader, Value: r.Op.Expand(line)})
	}
	return r
}

// trySpelling sends a request with the spelling twice, once in a run.
func trySpelling(t *T, s spelling) trial {
	return shared(t, s[0], func(t *T) trial {
		w, r := t.watch(), t.spelled(t.fresh(), s)
		first, second := t.patient(r), t.send(r)
		return w.try(min(1, successes(first, second)), first, second)
	})
}

// keyAccepted returns the check that a spelling is accepted.
func keyAccepted(s spelling) func(*T) {
	return func(t *T) {
		if s[1] != quoted && strings.Contains(s[1], `"`) {
			e := trySpelling(t, accepted[0]).first()
			t.skipIf(!e.Success(), "the server takes no key in quotes: see key/quoted")
		}
		t.success(trySpelling(t, s).first())
	}
}

// longKey returns a key of the length that begins with the request's.
func longKey(r ask.Request, length int) string {
	return r.Op.Key + strings.Repeat("k", length-len(r.Op.Key))
}

// keyLength255 counts the characters of the key or, if the server counts the quotes too, those of the header.
func keyLength255(t *T) {
	r := t.fresh()
	e := t.patient(t.keyed(r, longKey(r, 255)))
	if isRefusal(e) && t.KeyFormat == quoted {
		e = t.patient(t.keyed(r, longKey(r, 253)))
	}
	t.success(e)
}

// keyPair sends one body under two keys, which are a stem of the length and two ends.
func keyPair(t *T, length int, one, other string) {
	r := t.fresh()
	stem := longKey(r, length)
	twoOfEqual(t, t.keyed(r, stem+one), t.keyed(r, stem+other))
}

// twoOfEqual sends two requests with one body. It fails the check if there are fewer than two effects although both are
// successes, and ends it if they are one operation to the service.
func twoOfEqual(t *T, first, second ask.Request) {
	t.skipIf(t.equalIsOne, "the same body under another key does nothing more: to the service, equal requests are one")
	w := t.watch()
	tr := w.try(2, t.first(first), t.send(second))
	t.show(tr.sent...)
	t.skipIf(!tr.last().Success(), "the second key was refused: %s", tr.last())
	t.failIf(tr.effects < 2, "two effects", "%s", effects(tr.effects))
}

func keyLengthDistinct(t *T) {
	keyPair(t, 249, "a", "b")
	// A key above 255 characters may be refused. Then it cannot be taken for another.
	if probe := t.fresh(); t.send(t.keyed(probe, longKey(probe, 300))).Success() {
		keyPair(t, 299, "a", "b")
	}
}

func keyTooLong(t *T) {
	tr := trySpelling(t, tooLong)
	isHandled := tr.first().Success() || isRefusal(tr.first())
	t.failIf(!isHandled, "a 4xx or a success", "%s", tr.first())
	hadAtMostOne(t, tr)
}

func keyNeverUnprotected(t *T) {
	for _, s := range spellings {
		n := trySpelling(t, s).effects
		t.failIf(n > 1, "a refusal, or one effect", "%s (%s)", effects(n), s[0])
	}
}

func keyRefusedNotRun(t *T) {
	refused := 0
	for _, s := range slices.Concat(spellings, empties) {
		tr := trySpelling(t, s)
		if isRefusal(tr.first()) && isRefusal(tr.last()) {
			refused++
			t.failIf(tr.effects > 0, "no effect", "%s (%s)", effects(tr.effects), s[0])
		}
	}
	t.skipIf(refused == 0, "the server refuses no key")
}

// keySpelling asks for the rules of a structured-field string in one: most servers that break one take the header as it is.
func keySpelling(t *T) {
	var faults []string
	var shown []ask.Exchange
	fault := func(s spelling, what string, exchanges ...ask.Exchange) {
		if faults = append(faults, s[0]+" ("+what+")"); shown == nil {
			shown = exchanges
		}
	}
	if trySpelling(t, accepted[0]).first().Success() {
		for _, s := range []spelling{accepted[1], parameters} {
			tr := quotedThen(t, s)
			e := tr.last()
			switch isInvalid := has(t.Statuses.Invalid, e) || !e.Success() && !isRefusal(e); {
			case isInvalid && s[1] != bare: // which may be refused
				fault(s, e.String(), e)
			case tr.effects != 1:
				fault(s, "is another key", tr.sent...)
			}
		}
	}
	for _, s := range slices.Concat(malformed, empties) {
		want := t.Statuses.Invalid
		if s[1] == "" {
			want = slices.Concat(want, t.Statuses.Missing)
		}
		switch tr := trySpelling(t, s); {
		case has(want, tr.first()):
		case tr.effects > 1:
			fault(s, "runs each time", tr.first())
		default:
			fault(s, tr.first().String(), tr.first())
		}
	}
	t.show(shown...)
	t.failIf(faults != nil, "a malformed key gets "+statuses(t.Statuses.Invalid),
		"%d ways to write it are read otherwise: %s", len(faults), strings.Join(faults, ", "))
}

// quotedThen sends one operation with its key in quotes, and then in the spelling.
func quotedThen(t *T, s spelling) trial {
	r, w := t.fresh(), t.watch()
	return w.try(1, t.first(t.spelled(r, accepted[0])), t.rest(t.spelled(r, s)))
}

// keyless sends a request without a key, once in a run.
func keyless(t *T) trial {
	return shared(t, "missing", func(t *T) trial {
		w := t.watch()
		e := t.patient(t.fresh().Without(t.KeyHeader))
		return w.try(successes(e), e)
	})
}

// wantRequired returns the trial without a key, and ends the check if that is allowed.
func wantRequired(t *T) trial {
	tr := keyless(t)
	t.skipIf(tr.first().Success(), "a request without a key runs: the key is optional here")
	return tr
}

func keyMissing(t *T) {
	e := wantRequired(t).first()
	t.failIf(!has(t.Statuses.Missing, e), statuses(t.Statuses.Missing), "%s", e)
}

func keyMissingRuns(t *T) {
	e := keyless(t).first()
	t.failIf(e.Success(), "a refusal", "%s", e)
}

func keyMissingNotRun(t *T) {
	tr := wantRequired(t)
	t.failIf(tr.effects > 0, "no effect", "%s, and %s", tr.first(), effects(tr.effects))
}

func keyGet(t *T) {
	post := t.fresh()
	get := post.Bare(http.MethodGet)
	without, with := t.send(get.Without(t.KeyHeader)), t.send(get)
	t.skipIf(without.Response == nil, "GET: %s", without)
	isSame := has([]int{without.Response.Status}, with)
	t.failIf(!isSame, without.String()+", as for GET without a key", "%s", with)
	e := t.patient(post)
	t.failIf(!e.Success(), "a success under the key that a GET had", "%s", e)
}
