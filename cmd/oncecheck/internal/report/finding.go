package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// group is a failure with those that have the same cause.
type group struct {
	lead  Entry
	also  []Entry
	cause cause
}

// cause is why several checks fail at once. Lists of ids are separated by white space; an id may end in *.
type cause struct {
	lead     string // the check that shows it
	says     string // what the server does if the lead tells of two effects or more; %s is the key's header
	next     string
	explains string // failures that follow from it
}

const (
	// repeated fail if a repetition runs again, and nothing reads the key.
	repeated = raced + ` key/spelling key/too-long key/never-unprotected key/name-case key/missing-runs once/repeat*
		once/instances-repeat once/expect-continue once/chunked once/answer-lost once/sent-twice once/samples replay/*
		mismatch/body mismatch/original-stays mismatch/whitespace mismatch/number-spelling mismatch/null mismatch/bytes
		scope/user-runs errors/failed-once store/down-once store/down-completed store/remembers crash/at-most-once crash/after-answer`
	// raced fail if requests that arrive at the same time all run.
	raced = `once/concurrent once/instances-concurrent once/sent-twice-at-once once/http2 once/client-leaves
		inflight/answer inflight/once inflight/then-replay mismatch/in-flight load/shuffled`
	// differing fail if a replay has another body.
	differing = `replay/body* replay/encoding once/concurrent once/instances-concurrent once/http2 mismatch/original-stays
		mismatch/whitespace mismatch/number-spelling scope/user-runs inflight/answer inflight/then-replay
		store/remembers crash/after-answer load/shuffled`
	// refused fail if there is no replay at all.
	refused = `replay/error mismatch/whitespace mismatch/number-spelling once/client-leaves-answered inflight/then-replay
		errors/failed-answered store/remembers crash/after-answer`

	takeKey = "Take the key in one atomic step before the handler runs (an INSERT under a unique index, or SET NX in Redis)"
	replay  = ", store the response under it, and answer repetitions with that response. If the server reads the key from another " +
		"header, such as X-Idempotency-Key, name it with -key-header."
	share = "Keep keys and responses where all instances read them, such as a database or Redis, and not in a process."
)

// causes are tried in this order.
var causes = []cause{
	{"once/repeat", "runs a repeated request again, as if it had no %s", takeKey + replay, repeated},
	{"once/concurrent", "runs requests that have the same %s more than once if they arrive at the same instant",
		takeKey + ": between a look-up and a later write, others find nothing and run too.", raced},
	{"once/instances-repeat", "runs a request again if it reaches another instance with the same %s", share,
		"once/instances-concurrent load/shuffled"},
	{"once/instances-concurrent", "runs a request on each instance if it reaches them at the same instant with the same %s", share,
		"load/shuffled"},
	{lead: "once/keys-differ", explains: "key/length-distinct key/value-case"},
	{lead: "once/samples", explains: "replay/*"},
	{lead: "replay/body", explains: differing},
	{lead: "replay/answered", explains: refused},
	{lead: "replay/location", explains: "replay/redirect replay/headers"},
	{lead: "replay/status", explains: "replay/redirect replay/error"},
	{lead: "scope/user", explains: "scope/user-*"},
	{lead: "scope/user-runs", explains: "scope/user-in-flight"},
	{lead: "mismatch/body", explains: "mismatch/in-flight* mismatch/query mismatch/null mismatch/bytes"},
	{lead: "mismatch/path", explains: "scope/route"},
	{lead: "mismatch/status", explains: "mismatch/in-flight-status"},
	{lead: "mismatch/not-run", explains: "mismatch/in-flight"},
	{lead: "inflight/answer", explains: "inflight/once inflight/then-replay once/client-leaves mismatch/in-flight"},
	{lead: "inflight/retry-after", explains: "errors/says-retry"},
	{lead: "key/never-unprotected", explains: "key/spelling key/too-long key/refused-not-run"},
	{lead: "store/down-once", explains: "store/down-completed"},
	{lead: "store/recovers", explains: "store/remembers"},
}

// severalEffects matches what a check has seen that tells of two effects or more.
var severalEffects = regexp.MustCompile(`^\d+ effects`)

// groups returns the failures by their causes, the gravest first: money before form, and last what does not count.
func (r Report) groups() (groups []group) {
	var left []Entry
	for _, e := range r.Entries {
		if e.Verdict == check.Failed {
			left = append(left, e)
		}
	}
	for _, c := range causes {
		i := slices.IndexFunc(left, func(e Entry) bool { return c.lead == e.Check.ID })
		if i < 0 || c.says != "" && !severalEffects.MatchString(left[i].Got) {
			continue
		}
		g := group{lead: left[i], cause: c}
		left = slices.DeleteFunc(left, func(e Entry) bool {
			isLead := e.is(g.lead)
			follows := !isLead && slices.ContainsFunc(strings.Fields(c.explains), e.Check.Is) && (g.lead.Broken() || !e.Broken())
			if follows {
				g.also = append(g.also, e)
			}
			return isLead || follows
		})
		groups = append(groups, g)
	}
	for _, e := range left {
		groups = append(groups, group{lead: e})
	}
	slices.SortStableFunc(groups, func(a, b group) int { return a.lead.rank() - b.lead.rank() })
	return groups
}

// rank orders failures. Those that break the run are below the others.
func (e Entry) rank() int {
	name, _, _ := strings.Cut(e.Check.ID, "/")
	rank := slices.Index([]string{"once", "scope", "store", "crash", "mismatch", "load", "inflight", "replay", "key"}, name)
	if rank < 0 {
		rank = 9
	}
	if !e.Broken() {
		rank += 10 * (1 + slices.Index([]check.Level{check.Must, check.Should, check.May, check.Advice}, e.Check.Level))
	}
	return rank
}

// verdict says the result in one or two sentences to a reader who does not know the checks, and what to do. Known failures, and
// those that do not count, are no result.
func (r Report) verdict() (says, next string) {
	if groups := r.groups(); len(groups) > 0 && groups[0].lead.Broken() {
		g := groups[0]
		if g.cause.says != "" {
			return fmt.Sprintf("%s "+g.cause.says+": %s.", r.Target, cmp.Or(r.KeyHeader, "Idempotency-Key"), g.lead.Got), g.cause.next
		}
		return fmt.Sprintf("%s fails %s. It should hold that %s; seen: %s.", r.Target, g.lead.Check.ID, g.lead.Check.Title, g.lead.Got),
			"Mend this first. To ask it alone, add -only " + g.lead.Check.ID + "."
	}
	sums, known := r.Sums(), ""
	if sums.Known > 0 {
		known = fmt.Sprintf(", but for the %d known", sums.Known)
	} else if sums.Noted > 0 {
		known = fmt.Sprintf(", but for the %d noted, which do not count", sums.Noted)
	}
	unseen := slices.IndexFunc(r.Entries, func(e Entry) bool {
		return e.Verdict == check.NotAsked && strings.HasPrefix(e.Sentence, "give -effects") && slices.Contains(e.Check.Needs, check.Effects)
	})
	switch {
	case sums.NotAsked == len(r.Entries):
		return r.Target + ": nothing could be asked.", ""
	case unseen >= 0:
		return fmt.Sprintf("%s: nothing failed%s, but oncecheck could not see whether a repeated request runs again.", r.Target, known),
			"For that, " + r.Entries[unseen].Sentence + "."
	}
	return fmt.Sprintf("%s: all that was asked holds%s.", r.Target, known), ""
}

// more says which flags would ask more, or nothing.
func (r Report) more() string {
	var flags []string
	checks := map[string]int{}
	for _, e := range r.Entries {
		rest, ok := strings.CutPrefix(e.Sentence, "give -")
		if e.Verdict != check.NotAsked || !ok {
			continue
		}
		flag := "-" + strings.FieldsFunc(rest, func(c rune) bool { return c == ',' || c == ' ' || c == ':' })[0]
		if checks[flag]++; checks[flag] == 1 {
			flags = append(flags, flag)
		}
	}
	for i, flag := range flags {
		flags[i] = fmt.Sprintf("%s (%d)", flag, checks[flag])
	}
	if flags == nil {
		return ""
	}
	return "With these flags more checks can be asked: " + strings.Join(flags, ", ") + ". For what they mean: oncecheck -h."
}
