package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// failures returns what failed, the gravest first: money before form, and last what does not count.
func (r Report) failures() []Entry {
	all := slices.DeleteFunc(slices.Clone(r.Entries), func(e Entry) bool { return e.Verdict != check.Failed })
	slices.SortStableFunc(all, func(a, b Entry) int { return a.rank() - b.rank() })
	return all
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

// next says what mends the commonest faults.
var next = map[string]string{
	"once/repeat":           "Store the response under the key, and answer repetitions with it. Or name the header: -key-header.",
	"once/concurrent":       "Take the key in one atomic step before the handler runs: INSERT under a unique index, SET NX in Redis.",
	"once/instances-repeat": "Keep keys and responses where all instances read them.",
}

// verdict says the result in one or two sentences to a reader who does not know the checks, and what to do. Known failures, and
// those that do not count, are no result.
func (r Report) verdict() (says, help string) {
	if all := r.failures(); len(all) > 0 && all[0].Broken() {
		c := all[0].Check
		says = fmt.Sprintf("%s fails %s. It should hold that %s; seen: %s.", r.Target, c.ID, c.Title, all[0].Got)
		return says, strings.TrimSpace(next[c.ID] + " Others may have the same cause. To ask it alone, add -only " + c.ID + ".")
	}
	sums, known := r.Sums(), ""
	if sums["known"] > 0 {
		known = fmt.Sprintf(", but for the %d known", sums["known"])
	} else if sums["noted"] > 0 {
		known = fmt.Sprintf(", but for the %d noted, which do not count", sums["noted"])
	}
	unseen := slices.IndexFunc(r.Entries, func(e Entry) bool {
		return strings.HasPrefix(e.Sentence, "give -effects") && e.Check.Needs&check.Effects != 0
	})
	switch {
	case sums["not asked"] == len(r.Entries):
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
	for _, e := range r.Entries {
		found := flag.FindStringSubmatch(e.Sentence)
		if found != nil && e.Verdict == check.NotAsked && !slices.Contains(flags, found[1]) {
			flags = append(flags, found[1])
		}
	}
	if flags == nil {
		return ""
	}
	return "With these flags more checks can be asked: " + strings.Join(flags, ", ") + ". For what they mean: oncecheck -h.\n"
}
