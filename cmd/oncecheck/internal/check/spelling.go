package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// spelling writes a key in one or several header lines.
type spelling struct {
	name  string
	lines func(key string) []string
}

// one returns the spelling in one line that has the key in place of {{key}}.
func one(name, line string) spelling {
	return spelling{name, func(key string) []string { return []string{strings.ReplaceAll(line, bare, key)} }}
}

var (
	inQuotes   = one("a key in quotes", quoted)
	accepted   = []spelling{inQuotes, one("a key without quotes", bare), one(`a key with \" and \\`, `"a\"b\\c-{{key}}"`)}
	parameters = one("a key with parameters", quoted+";a=1")
	tooLong    = one("a key of 4,000 characters", `"{{key}}`+strings.Repeat("k", 4000-36)+`"`)
	empties    = []spelling{one(`an empty key ("")`, `""`), one("no value", "")}
	malformed  = append([]spelling{
		one(`\x in the key`, `"a\x{{key}}"`), one("no closing quote", `"{{key}}`), one("é in the key", `"é{{key}}"`), one("two keys in one line", `"a-{{key}}", "b-{{key}}"`),
		{"two keys in two lines", func(key string) []string { return []string{`"a-` + key + `"`, `"b-` + key + `"`} }},
	}, empties...)
	// spellings are all but the empty ones, which a server may take for no key.
	spellings = slices.Concat(accepted, []spelling{parameters, tooLong}, malformed[:len(malformed)-len(empties)])
)

// longKey returns a key of the length that begins with the given one.
func longKey(key string, length int) string {
	return key + strings.Repeat("k", length-len(key))
}

// trySpelling sends a request with the spelling twice, once in a run.
func trySpelling(t *T, s spelling) trial {
	return shared(t, s.name, func() trial {
		op := t.s.operation()
		r := t.s.request(op).Without(t.s.KeyHeader)
		for _, line := range s.lines(op.Key) {
			r.Header = append(slices.Clone(r.Header), ask.Field{Name: t.s.KeyHeader, Value: line})
		}
		w := t.Watch()
		first := t.SendPatiently(r)
		second := t.Send(r)
		if slices.ContainsFunc(malformed, func(m spelling) bool { return m.name == s.name }) {
			t.refused("malformed", first)
		}
		return w.try(min(1, successes(first, second)), first, second)
	})
}

// keySpelling asks for the rules of a structured-field string in one: most servers that break one take the header as it is.
func keySpelling(t *T) {
	var faults []string
	var shown []ask.Exchange
	fault := func(name, what string, exchanges ...ask.Exchange) {
		if faults = append(faults, name+" ("+what+")"); len(shown) == 0 {
			shown = exchanges
		}
	}
	asked := len(malformed)
	if trySpelling(t, inQuotes).first().Success() {
		asked += 2
		for _, s := range []spelling{accepted[1], parameters} {
			switch tr := both(t, quoted, s); {
			case s.name == parameters.name && isInvalid(t, tr.last()):
				fault(s.name, tr.last().String(), tr.last())
			case tr.effects != 1:
				fault(s.name, "is another key", tr.sent...)
			}
		}
	}
	for _, s := range malformed {
		tr, want := trySpelling(t, s), t.s.Statuses.Invalid
		if len(s.lines("")[0]) == 0 {
			want = slices.Concat(want, t.s.Statuses.Missing)
		}
		if !has(want, tr.first()) {
			what := tr.first().String()
			if tr.effects > 1 {
				what = "runs each time"
			}
			fault(s.name, what, tr.first())
		}
	}
	if len(faults) > 0 {
		t.Show(shown...)
		t.Failf(fmt.Sprintf("none of %d; a malformed key gets %s", asked, statuses(t.s.Statuses.Invalid)), "%d of %d ways to write it are read otherwise: %s", len(faults), asked, strings.Join(faults, ", "))
	}
	t.Say("%d ways to write a key", asked)
}

// isInvalid reports whether the response refuses a malformed key, or fails.
func isInvalid(t *T, e ask.Exchange) bool {
	return e.Response == nil || e.Response.Status >= 500 || has(t.s.Statuses.Invalid, e)
}

// both sends one operation with its key in the format, and then in the spelling.
func both(t *T, format string, s spelling) trial {
	op, w := t.s.operation(), t.Watch()
	first := t.First(t.s.request(op).With(t.s.KeyHeader, op.Expand(format)))
	return w.try(1, first, t.Rest(t.s.request(op).With(t.s.KeyHeader, s.lines(op.Key)[0])))
}
