package check

import (
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

func successes(exchanges ...ask.Exchange) (n int) {
	for _, e := range exchanges {
		if e.Success() {
			n++
		}
	}
	return n
}

// keyAccepted returns the check that a spelling is accepted.
func keyAccepted(s spelling) func(*T) {
	return func(t *T) {
		if s.name != inQuotes.name && strings.Contains(s.lines("")[0], `"`) {
			t.wantQuotes()
		}
		if tried := t.try(s); !tried.first.Success() {
			t.Show(tried.first)
			t.Failf("a success", "%s", tried.first)
		}
	}
}

// wantQuotes ends the check if the server takes no key in quotes at all.
func (t *T) wantQuotes() {
	if tried := t.try(inQuotes); !tried.first.Success() {
		t.NotAsked("the server takes no key in quotes: see key/quoted")
	}
}

func keyLength255(t *T) {
	op := t.s.operation()
	if e := t.SendPatiently(t.s.requestWith(op, longKey(op.Key, 255))); !e.Success() {
		t.Failf("a success", "%s", e)
	}
}

// keyPair sends one body under two keys, which are a stem of the length and two ends. It fails if there are fewer than two
// effects although both are successes.
func keyPair(t *T, length int, one, other string) {
	op := t.s.operation()
	stem := longKey(op.Key, length)
	w := t.Watch()
	first := t.First(t.s.requestWith(op, stem+one))
	second := t.Send(t.s.requestWith(op, stem+other))
	w.See(first, second)
	t.Show(first, second)
	if !second.Success() {
		t.NotAsked("the second key was refused: %s", second)
	}
	if n := w.Effects(2); n < 2 {
		t.Failf("two effects", "%s", effects(n))
	}
}

func keyLengthDistinct(t *T) {
	keyPair(t, 249, "a", "b")

	// A key above 255 characters may be refused. Then it cannot be taken for another.
	probe := t.s.operation()
	if t.Send(t.s.requestWith(probe, longKey(probe.Key, 300))).Success() {
		keyPair(t, 299, "a", "b")
	}
}

func keyValueCase(t *T) {
	keyPair(t, 40, "-a", "-A")
}

func keyTooLong(t *T) {
	tried := t.try(tooLong)
	switch r := tried.first.Response; {
	case r == nil || r.Status >= 500:
		t.Failf("a 4xx or a success", "%s", tried.first)
	case tried.effects > 1:
		t.Failf("at most one effect", "%s", effects(tried.effects))
	}
}

func keyNeverUnprotected(t *T) {
	for _, s := range spellings {
		if tried := t.try(s); tried.effects > 1 {
			t.Show(tried.first, tried.second)
			t.Failf("a refusal, or one effect", "%s (%s)", effects(tried.effects), s.name)
		}
	}
	t.Say("%d spellings, each sent twice", len(spellings))
}

func keyRefusedNotRun(t *T) {
	refused := 0
	for _, s := range slices.Concat(spellings, empties) {
		tried := t.try(s)
		if !isRefusal(tried.first) || !isRefusal(tried.second) {
			continue
		}
		refused++
		if tried.effects > 0 {
			t.Show(tried.first, tried.second)
			t.Failf("no effect", "%s (%s)", effects(tried.effects), s.name)
		}
	}
	if refused == 0 {
		t.NotAsked("the server refuses no key")
	}
	t.Say("%d spellings are refused, and none had an effect", refused)
}

// isRefusal reports whether the client was told that it is at fault.
func isRefusal(e ask.Exchange) bool {
	return e.Response != nil && e.Response.Status >= 400 && e.Response.Status < 500
}

func keyNameCase(t *T) {
	op := t.s.operation()
	r := t.s.request(op).Without(t.s.KeyHeader)
	w := t.Watch()
	lower := t.SendPatiently(r.With(strings.ToLower(t.s.KeyHeader), t.s.spell(op)))
	if !lower.Success() {
		t.Failf("a success", "%s", lower)
	}
	upper := t.Send(r.With(strings.ToUpper(t.s.KeyHeader), t.s.spell(op)))
	if upper.Response != nil && slices.Contains(t.s.Statuses.Missing, upper.Response.Status) {
		t.Failf("the same key", "%s", upper)
	}
	w.See(lower, upper)
	w.Once()
}

func keyGet(t *T) {
	op := t.s.operation()
	post := t.s.request(op)
	get := post.Bare("GET")
	without, with := t.Send(get.Without(t.s.KeyHeader)), t.Send(get)
	if without.Response == nil {
		t.NotAsked("GET: %s", without)
	}
	if with.Response == nil || with.Response.Status != without.Response.Status {
		t.Failf("GET with a key as without: "+without.String(), "%s", with)
	}
	if e := t.SendPatiently(post); !e.Success() {
		t.Failf("a success under the key that a GET had", "%s", e)
	}
}

// keyless sends a request without a key, once in a run.
func (t *T) keyless() trial {
	tried := memo(t, "missing", func() trial {
		w := t.Watch()
		tried := trial{first: t.SendPatiently(t.s.request(t.s.operation()).Without(t.s.KeyHeader))}
		w.See(tried.first)
		if t.s.SeesEffects() {
			tried.effects = w.Effects(successes(tried.first))
		}
		t.refused("missing", tried.first)
		return tried
	})
	t.Show(tried.first)
	return tried
}

func keyMissing(t *T) {
	e := t.keyless().first
	if e.Success() {
		t.NotAsked("a request without a key runs: the key is optional here")
	}
	if e.Response == nil || !slices.Contains(t.s.Statuses.Missing, e.Response.Status) {
		t.Failf(statuses(t.s.Statuses.Missing), "%s", e)
	}
}

func keyMissingRuns(t *T) {
	if e := t.keyless().first; e.Success() {
		t.Failf("a refusal", "%s", e)
	}
}

func keyMissingNotRun(t *T) {
	tried := t.keyless()
	if tried.first.Success() {
		t.NotAsked("a request without a key runs: the key is optional here")
	}
	if tried.effects > 0 {
		t.Failf("no effect", "%s, and %s", tried.first, effects(tried.effects))
	}
}
