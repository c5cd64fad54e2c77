package check

import (
	"net/http"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// keyAccepted returns the check that a spelling is accepted.
func keyAccepted(s spelling) func(*T) {
	return func(t *T) {
		if s.name != inQuotes.name && strings.Contains(s.lines("")[0], `"`) {
			wantQuotes(t)
		}
		first := trySpelling(t, s).first()
		t.Show(first)
		t.Success(first)
	}
}

// wantQuotes ends the check if the server takes no key in quotes at all.
func wantQuotes(t *T) {
	t.skipIf(!trySpelling(t, inQuotes).first().Success(), "the server takes no key in quotes: see key/quoted")
}

// keyLength255 counts the characters of the key or, if the server counts the quotes too, those of the header.
func keyLength255(t *T) {
	op := t.s.operation()
	r := t.s.requestWith(op, longKey(op.Key, 255))
	e := t.SendPatiently(r)
	if isRefusal(e) && t.s.KeyFormat == quoted {
		e = t.SendPatiently(r.With(t.s.KeyHeader, `"`+longKey(op.Key, 253)+`"`))
		t.Say("with the quotes")
	}
	t.Success(e)
}

// keyPair sends one body under two keys, which are a stem of the length and two ends. It fails if there are fewer than two
// effects although both are successes.
func keyPair(t *T, length int, one, other string) {
	wantTwoOfEqual(t)
	op := t.s.operation()
	stem := longKey(op.Key, length)
	w := t.Watch()
	tr := w.try(2, t.First(t.s.requestWith(op, stem+one)), t.Send(t.s.requestWith(op, stem+other)))
	t.Show(tr.sent...)
	t.skipIf(!tr.last().Success(), "the second key was refused: %s", tr.last())
	t.failIf(tr.effects < 2, "two effects", "%s", effects(tr.effects))
}

func keyLengthDistinct(t *T) {
	keyPair(t, 249, "a", "b")

	// A key above 255 characters may be refused. Then it cannot be taken for another.
	probe := t.s.operation()
	if t.Send(t.s.requestWith(probe, longKey(probe.Key, 300))).Success() {
		keyPair(t, 299, "a", "b")
	}
}

func keyValueCase(t *T) { keyPair(t, 40, "-a", "-A") }

func keyTooLong(t *T) {
	tr := trySpelling(t, tooLong)
	if r := tr.first().Response; r == nil || r.Status >= 500 {
		t.Failf("a 4xx or a success", "%s", tr.first())
	}
	t.AtMostOnce(tr.effects)
}

func keyNeverUnprotected(t *T) {
	for _, s := range spellings {
		if tr := trySpelling(t, s); tr.effects > 1 {
			t.Failf("a refusal, or one effect", "%s (%s)", effects(tr.effects), s.name)
		}
	}
	t.Say("%d spellings, each sent twice", len(spellings))
}

func keyRefusedNotRun(t *T) {
	refused := 0
	for _, s := range slices.Concat(spellings, empties) {
		tr := trySpelling(t, s)
		if !isRefusal(tr.first()) || !isRefusal(tr.last()) {
			continue
		}
		refused++
		t.failIf(tr.effects > 0, "no effect", "%s (%s)", effects(tr.effects), s.name)
	}
	t.skipIf(refused == 0, "the server refuses no key")
	t.Say("%d spellings are refused, and none had an effect", refused)
}

func keyNameCase(t *T) {
	r := t.s.fresh()
	value := r.Header[len(r.Header)-1].Value // of the key
	r = r.Without(t.s.KeyHeader)
	w := t.Watch()
	lower := t.SendPatiently(r.With(strings.ToLower(t.s.KeyHeader), value))
	t.Success(lower)
	upper := t.Send(r.With(strings.ToUpper(t.s.KeyHeader), value))
	t.failIf(has(t.s.Statuses.Missing, upper), "the same key", "%s", upper)
	w.See(lower, upper)
	w.Once()
}

// asWithout fails the check unless a request of the method, with a key, has the status of one without.
func asWithout(t *T, r ask.Request, method, key string) {
	bare := r.Bare(method)
	without, with := t.Send(bare.Without(t.s.KeyHeader)), t.Send(bare)
	t.skipIf(without.Response == nil, "%s: %s", method, without)
	t.failIf(!has([]int{without.Response.Status}, with), without.String()+", as for "+method+" without "+key, "%s", with)
}

func keyGet(t *T) {
	post := t.s.fresh()
	asWithout(t, post, http.MethodGet, "a key")
	if e := t.SendPatiently(post); !e.Success() {
		t.Failf("a success under the key that a GET had", "%s", e)
	}
}

// keyless sends a request without a key, once in a run.
func keyless(t *T) trial {
	return shared(t, "missing", func() trial {
		w := t.Watch()
		e := t.SendPatiently(t.s.fresh().Without(t.s.KeyHeader))
		t.refused("missing", e)
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
	if e := wantRequired(t).first(); !has(t.s.Statuses.Missing, e) {
		t.Failf(statuses(t.s.Statuses.Missing), "%s", e)
	}
}

func keyMissingRuns(t *T) {
	if e := keyless(t).first(); e.Success() {
		t.Failf("a refusal", "%s", e)
	}
}

func keyMissingNotRun(t *T) {
	if tr := wantRequired(t); tr.effects > 0 {
		t.Failf("no effect", "%s, and %s", tr.first(), effects(tr.effects))
	}
}
