package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// group is a failure, and how many have the same cause.
type group struct {
	lead  Entry
	also  int
	cause cause
}

// cause is why several checks fail at once. Lists of ids are separated by white space; an id may end in *.
type cause struct {
	lead     string // the check that shows it
	explains string // failures that follow from it

	// What the server does if the lead tells of two effects or more; %s is the key's header.
	says string
	next string
}

const (
	// repeats fail if a repetition runs again, and nothing reads the key.
	repeats = races + ` key/spelling key/too-long key/never-unprotected key/name-case key/missing-runs once/repeat*
		once/instances-repeat once/expect-continue once/chunked once/answer-lost once/sent-twice once/samples
		replay/* mismatch/body mismatch/original-stays mismatch/whitespace mismatch/number-spelling
		mismatch/null mismatch/bytes scope/user-runs errors/failed-once store/down-once store/down-completed
		store/remembers crash/at-most-once crash/after-answer`
	// races fail if requests that arrive at the same time all run.
	races = `once/concurrent once/instances-concurrent once/sent-twice-at-once once/http2 once/client-leaves
		inflight/answer inflight/once inflight/then-replay mismatch/in-flight load/shuffled`
	// differs fail if a replay has another body.
	differs = `replay/body* replay/encoding once/concurrent once/instances-concurrent once/http2
		mismatch/original-stays mismatch/whitespace mismatch/number-spelling scope/user-runs
		inflight/answer inflight/then-replay store/remembers crash/after-answer load/shuffled`
	// refuses fail if there is no replay at all.
	refuses = `replay/error mismatch/whitespace mismatch/number-spelling once/client-leaves-answered
		inflight/then-replay errors/failed-answered store/remembers crash/after-answer`

	takeKey = "Take the key in one atomic step before the handler runs (an INSERT under a unique index, or SET NX in Redis)"
	replay  = ", store the response under it, and answer repetitions with that response. " +
		"If the server reads the key from another header, name it with -key-header."
	share = "Keep keys and responses where all instances read them, such as a database or Redis."
)

// grave are the causes of two effects and more. Like others, they are tried in this order.
var grave = []cause{
	{"once/repeat", repeats, "runs a repeated request again, as if it had no %s", takeKey + replay},
	{"once/concurrent", races, "runs requests that have the same %s more than once if they arrive at the same instant",
		takeKey + ": between a look-up and a later write, others find nothing and run too."},
	{"once/instances-repeat", "once/instances-concurrent load/shuffled",
		"runs a request again if it reaches another instance with the same %s", share},
	{"once/instances-concurrent", "load/shuffled",
		"runs a request on each instance if it reaches them at the same instant with the same %s", share},
}

// others are causes by their leads, and what these explain.
var others = []string{
	"once/keys-differ", "key/length-distinct key/value-case",
	"once/samples", "replay/*",
	"replay/body", differs,
	"replay/answered", refuses,
	"replay/location", "replay/redirect replay/headers",
	"replay/status", "replay/redirect replay/error",
	"scope/user", "scope/user-*",
	"scope/user-runs", "scope/user-in-flight",
	"mismatch/body", "mismatch/in-flight* mismatch/query mismatch/null mismatch/bytes",
	"mismatch/path", "scope/route",
	"mismatch/status", "mismatch/in-flight-status",
	"mismatch/not-run", "mismatch/in-flight",
	"inflight/answer", "inflight/once inflight/then-replay once/client-leaves mismatch/in-flight",
	"inflight/retry-after", "errors/says-retry",
	"key/never-unprotected", "key/spelling key/too-long key/refused-not-run",
	"store/down-once", "store/down-completed",
	"store/recovers", "store/remembers",
}

func allCauses() []cause {
	all := slices.Clone(grave)
	for pair := range slices.Chunk(others, 2) {
		all = append(all, cause{lead: pair[0], explains: pair[1]})
	}
	return all
}

// severalEffects matches what a check has seen that tells of two effects or more.
var severalEffects = regexp.MustCompile(`^\d+ effects`)

// groups returns the failures by their causes, the gravest first: money before form, and last what does not count.
func (r Report) groups() (groups []group) {
	left := slices.DeleteFunc(slices.Clone(r.Entries), func(e Entry) bool { return e.Verdict != check.Failed })
	for _, c := range allCauses() {
		i := slices.IndexFunc(left, func(e Entry) bool { return c.lead == e.Check.ID })
		if i < 0 || c.says != "" && !severalEffects.MatchString(left[i].Got) {
			continue
		}
		lead, before := left[i], len(left)
		left = slices.DeleteFunc(left, func(e Entry) bool {
			follows := slices.ContainsFunc(strings.Fields(c.explains), e.Check.Is)
			return e.Check.ID == c.lead || follows && (lead.Broken() || !e.Broken())
		})
		groups = append(groups, group{lead, before - len(left) - 1, c})
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
	order := []string{"once", "scope", "store", "crash", "mismatch", "load", "inflight", "replay", "key", name}
	rank := slices.Index(order, name)
	if !e.Broken() {
		rank += 10 * (1 + slices.Index([]check.Level{check.Must, check.Should, check.Advice}, e.Check.Level))
	}
	return rank
}

// verdict says the result in one or two sentences to a reader who does not know the checks, and what to do. Known failures, and
// those that do not count, are no result.
func (r Report) verdict() (says, next string) {
	if groups := r.groups(); len(groups) > 0 && groups[0].lead.Broken() {
		lead, c := groups[0].lead, groups[0].cause
		if c.says != "" {
			header := cmp.Or(r.KeyHeader, "Idempotency-Key")
			return fmt.Sprintf("%s "+c.says+": %s.", r.Target, header, lead.Got), c.next
		}
		return fmt.Sprintf("%s fails %s. It should hold that %s; seen: %s.", r.Target, lead.Check.ID, lead.Check.Title, lead.Got),
			"Mend this first. To ask it alone, add -only " + lead.Check.ID + "."
	}
	sums, known := r.Sums(), ""
	if sums.Known > 0 {
		known = fmt.Sprintf(", but for the %d known", sums.Known)
	} else if sums.Noted > 0 {
		known = fmt.Sprintf(", but for the %d noted, which do not count", sums.Noted)
	}
	unseen := slices.IndexFunc(r.Entries, func(e Entry) bool {
		return strings.HasPrefix(e.Sentence, "give -effects") && e.Check.Needs&check.Effects != 0
	})
	switch {
	case sums.NotAsked == len(r.Entries):
		return r.Target + ": nothing could be asked.", ""
	case unseen >= 0:
		known += ", but oncecheck could not see whether a repeated request runs again"
		return fmt.Sprintf("%s: nothing failed%s.", r.Target, known), "For that, " + r.Entries[unseen].Sentence + "."
	}
	return fmt.Sprintf("%s: all that was asked holds%s.", r.Target, known), ""
}

// flag matches the flag that a check was not asked for want of.
var flag = regexp.MustCompile(`^give (-[A-Za-z0-9-]+)`)

// more says which flags would ask more, or nothing.
func (r Report) more() string {
	var flags []string
	checks := map[string]int{}
	for _, e := range r.Entries {
		if found := flag.FindStringSubmatch(e.Sentence); found != nil && e.Verdict == check.NotAsked {
			if checks[found[1]]++; checks[found[1]] == 1 {
				flags = append(flags, found[1])
			}
		}
	}
	for i, flag := range flags {
		flags[i] = fmt.Sprintf("%s (%d)", flag, checks[flag])
	}
	if flags == nil {
		return ""
	}
	return "With these flags more checks can be asked: " + strings.Join(flags, ", ") + ". For what they mean: oncecheck -h.\n"
}
