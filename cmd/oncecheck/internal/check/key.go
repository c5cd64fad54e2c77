package check

import (
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// trial is one spelling of a key, sent twice.
type trial struct {
	first, second ask.Exchange
	effects       int
}

// spelling writes a key in one or several header lines.
type spelling struct {
	id    string
	lines func(key string) []string
}

var (
	accepted = []spelling{
		{"key/quoted", func(key string) []string { return []string{`"` + key + `"`} }},
		{"key/bare", func(key string) []string { return []string{key} }},
		{"key/escaped", func(key string) []string { return []string{`"a\"b\\c-` + key + `"`} }},
		{"key/parameters", func(key string) []string { return []string{`"` + key + `";a=1`} }},
		{"key/length-255", func(key string) []string { return []string{`"` + longKey(key, 255) + `"`} }},
	}
	malformed = []spelling{
		{"key/empty", func(string) []string { return []string{`""`} }},
		{"key/empty-field", func(string) []string { return []string{""} }},
		{"key/bad-escape", func(key string) []string { return []string{`"a\x` + key + `"`} }},
		{"key/unterminated", func(key string) []string { return []string{`"` + key} }},
		{"key/non-ascii", func(key string) []string { return []string{`"é` + key + `"`} }},
		{"key/list", func(key string) []string { return []string{`"a-` + key + `", "b-` + key + `"`} }},
		{"key/two-fields", func(key string) []string { return []string{`"a-` + key + `"`, `"b-` + key + `"`} }},
	}
	tooLong   = spelling{"key/too-long", func(key string) []string { return []string{`"` + longKey(key, 4000) + `"`} }}
	spellings = slices.Concat(accepted, []spelling{tooLong}, malformed)
)

// longKey returns a key of the length that begins with the given one.
func longKey(key string, length int) string {
	return key + strings.Repeat("k", length-len(key))
}

// try sends a request with the spelling twice. It does so once in a run.
func (t *T) try(s spelling) trial {
	if known, ok := t.s.shared.trials[s.id]; ok {
		t.sent = append(t.sent, known.first, known.second)
		return known
	}
	op := t.s.operation()
	r := t.s.request(op).Without(t.s.KeyHeader)
	for _, line := range s.lines(op.Key) {
		r.Header = append(slices.Clone(r.Header), ask.Field{Name: t.s.KeyHeader, Value: line})
	}
	w := t.Watch()
	tried := trial{first: t.SendPatiently(r)}
	tried.second = t.Send(r)
	w.See(tried.first, tried.second)
	if t.s.SeesEffects() {
		tried.effects = w.Effects(min(1, successes(tried.first, tried.second)))
	}
	if s.isMalformed() {
		t.refused("malformed", tried.first)
	}
	t.s.shared.trials[s.id] = tried
	return tried
}

func (s spelling) isMalformed() bool {
	return slices.ContainsFunc(malformed, func(m spelling) bool { return m.id == s.id })
}

func successes(exchanges ...ask.Exchange) (n int) {
	for _, e := range exchanges {
		if e.Success() {
			n++
		}
	}
	return n
}

// spelling returns the spelling that the check is about.
func (t *T) spelling() spelling {
	i := slices.IndexFunc(spellings, func(s spelling) bool { return s.id == t.result.Check.ID })
	return spellings[i]
}

// keyAccepted wants the check's spelling to be accepted.
func keyAccepted(t *T) {
	if tried := t.try(t.spelling()); !tried.first.Success() {
		t.Show(tried.first)
		t.Failf("a success", "%s", tried.first)
	}
}

// keyRefused wants the check's spelling to be refused as malformed.
func keyRefused(t *T) {
	s, want := t.spelling(), t.s.Statuses.Invalid
	if s.id == "key/empty-field" {
		want = slices.Concat(want, t.s.Statuses.Missing)
	}
	tried := t.try(s)
	if tried.first.Response == nil || !slices.Contains(want, tried.first.Response.Status) {
		t.Show(tried.first)
		t.Failf(statuses(want), "%s", tried.first)
	}
}

func keyParameters(t *T) {
	keyAccepted(t)
	op := t.s.operation()
	w := t.Watch()
	with := t.First(t.s.request(op).With(t.s.KeyHeader, `"`+op.Key+`";a=1`))
	without := t.Send(t.s.request(op).With(t.s.KeyHeader, `"`+op.Key+`"`))
	w.See(with, without)
	t.Show(with, without)
	w.Once()
}

func keyBareIsQuoted(t *T) {
	op := t.s.operation()
	w := t.Watch()
	quoted := t.First(t.s.request(op).With(t.s.KeyHeader, `"`+op.Key+`"`))
	bare := t.Send(t.s.request(op).With(t.s.KeyHeader, op.Key))
	w.See(quoted, bare)
	w.Once()
}

// keyPair sends one body under two keys, which are a stem of the length and two ends. It fails if there are fewer than two
// effects although both are successes.
func keyPair(t *T, length int, one, other string) {
	op := t.s.operation()
	stem := longKey(op.Key, length)
	w := t.Watch()
	first := t.First(t.s.request(op).With(t.s.KeyHeader, `"`+stem+one+`"`))
	second := t.Send(t.s.request(op).With(t.s.KeyHeader, `"`+stem+other+`"`))
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
	probe := t.s.request(t.s.operation()).With(t.s.KeyHeader, `"`+longKey(ask.UUID(), 300)+`"`)
	if t.Send(probe).Success() {
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
			t.Failf("a refusal, or one effect", "%s (%s)", effects(tried.effects), s.id)
		}
	}
	t.Say("%d spellings, each sent twice", len(spellings))
}

func keyRefusedNotRun(t *T) {
	refused := 0
	for _, s := range spellings {
		tried := t.try(s)
		if !isRefusal(tried.first) || !isRefusal(tried.second) {
			continue
		}
		refused++
		if tried.effects > 0 {
			t.Show(tried.first, tried.second)
			t.Failf("no effect", "%s (%s)", effects(tried.effects), s.id)
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
	lower := t.SendPatiently(r.With(strings.ToLower(t.s.KeyHeader), t.s.spell(op.Key)))
	if !lower.Success() {
		t.Failf("a success", "%s", lower)
	}
	upper := t.Send(r.With(strings.ToUpper(t.s.KeyHeader), t.s.spell(op.Key)))
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

// keyless sends a request without a key. It does so once in a run.
func (t *T) keyless() trial {
	const id = "missing"
	if known, ok := t.s.shared.trials[id]; ok {
		t.sent = append(t.sent, known.first)
		return known
	}
	w := t.Watch()
	tried := trial{first: t.SendPatiently(t.s.request(t.s.operation()).Without(t.s.KeyHeader))}
	w.See(tried.first)
	if t.s.SeesEffects() {
		tried.effects = w.Effects(successes(tried.first))
	}
	t.refused("missing", tried.first)
	t.s.shared.trials[id] = tried
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
