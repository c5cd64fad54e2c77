package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// finding is the result of a run for a reader who does not know the checks.
type finding struct {
	verdict  string  // one or two sentences
	next     string  // what to do
	shown    *Entry  // the failure whose exchange shows it; nil if nothing failed
	explains []Entry // the failures with the same cause, shown among them
}

// cause is why several checks fail at once.
type cause struct {
	shows    []string // the first of these with two effects or more shows it
	and      []string // one of these fails as well, and none of them holds; empty if that does not matter
	says     string   // what the server does; %s is the key's header
	next     string
	explains []string // failures that follow from it; an id may end in *
}

var (
	// repeated fail if a repetition runs again.
	repeated = []string{
		"key/bare-is-quoted", "key/parameters", "key/too-long", "key/never-unprotected", "key/name-case",
		"once/repeat*", "once/instances-repeat", "once/http2", "once/expect-continue", "once/chunked", "once/client-leaves",
		"once/answer-*", "once/sent-twice", "replay/*", "mismatch/original-stays", "mismatch/whitespace", "scope/user-runs",
		"errors/failed-once", "store/down-once", "store/down-completed", "store/remembers", "crash/at-most-once",
		"crash/after-answer", "load/shuffled",
	}
	// raced fail if requests that arrive at the same time all run.
	raced = []string{
		"once/concurrent-*", "once/instances-concurrent-*", "once/sent-twice-at-once", "once/http2", "once/client-leaves",
		"inflight/answer", "inflight/once", "inflight/then-replay", "mismatch/in-flight", "load/shuffled",
	}
	// unread fail if nothing reads the key.
	unread = []string{
		"key/empty", "key/empty-field", "key/bad-escape", "key/unterminated", "key/non-ascii", "key/list", "key/two-fields",
		"key/missing-runs", "mismatch/body",
	}
	concurrent = []string{"once/concurrent-2", "once/concurrent-10", "once/concurrent-50"}
	instances  = []string{
		"once/instances-repeat", "once/instances-concurrent-2", "once/instances-concurrent-10", "once/instances-concurrent-50",
	}
)

const (
	takeKey = "Take the key in one atomic step before the handler runs (an INSERT under a unique index, or SET NX in Redis)"
	replay  = "store the response under it, and answer repetitions with that response"
)

// causes are tried in this order.
var causes = []cause{
	{
		shows: []string{"once/repeat"}, and: slices.Concat(concurrent, unread),
		says: "ignores %s", next: takeKey + ", " + replay + ".", explains: slices.Concat(repeated, raced, unread),
	},
	{
		shows: []string{"once/repeat"}, says: "runs a repeated request again, although it has the same %s",
		next: takeKey + ", " + replay + ".", explains: slices.Concat(repeated, raced, []string{"mismatch/body"}),
	},
	{
		shows: concurrent, says: "runs requests that have the same %s more than once if they arrive at the same instant",
		next: takeKey + ": between a look-up and a later write, others find nothing and run too.", explains: raced,
	},
	{
		shows: instances, says: "runs a request again if it reaches another instance with the same %s",
		next:     "Keep keys and responses where all instances read them, such as a database or Redis, and not in a process.",
		explains: slices.Concat(instances, []string{"load/shuffled"}),
	},
}

// finding returns the result in a few words. Known failures, and those that do not count, are no result.
func (r Report) finding() finding {
	for _, c := range causes {
		i := slices.IndexFunc(r.Entries, func(e Entry) bool { return slices.Contains(c.shows, e.Check.ID) && e.Broken() && e.effects() > 1 })
		if i >= 0 && r.applies(c) {
			shown := &r.Entries[i]
			f := finding{shown: shown, next: c.next}
			f.verdict = fmt.Sprintf("%s "+c.says+"%s.", r.Target, cmp.Or(r.KeyHeader, "Idempotency-Key"), r.counted(*shown))
			for _, e := range r.Entries {
				if e.Verdict == check.Failed && (e.Check.ID == shown.Check.ID || slices.ContainsFunc(c.explains, e.matches)) {
					f.explains = append(f.explains, e)
				}
			}
			return f
		}
	}
	if broken := r.broken(); len(broken) > 0 {
		first := broken[0]
		return finding{
			verdict: fmt.Sprintf("%s fails %s. It should hold that %s; seen: %s.", r.Target, first.Check.ID, first.Check.Title, first.Got),
			next:    "Mend this first. To ask it alone, add -only " + first.Check.ID + ".",
			shown:   &first, explains: []Entry{first},
		}
	}
	return r.noFailure()
}

// noFailure is the finding of a run without a failure that counts and is not known.
func (r Report) noFailure() finding {
	sums := r.Sums()
	f := finding{next: r.more()}
	known := ""
	if sums.Known > 0 {
		known = fmt.Sprintf(", but for the %d known", sums.Known)
	}
	i := slices.IndexFunc(r.Entries, func(e Entry) bool { return e.Check.ID == "once/repeat" })
	switch {
	case sums.NotAsked == len(r.Entries):
		f.verdict = r.Target + ": nothing could be asked."
	case i >= 0 && r.Entries[i].Verdict == check.NotAsked:
		f.verdict = fmt.Sprintf("%s: nothing failed%s, but oncecheck could not see whether a repeated request runs again.", r.Target, known)
		f.next = "For that, " + r.Entries[i].Sentence + "."
	default:
		f.verdict = fmt.Sprintf("%s: all that was asked holds%s.", r.Target, known)
	}
	return f
}

// applies reports whether the other checks agree with the cause.
func (r Report) applies(c cause) bool {
	agrees := len(c.and) == 0
	for _, e := range r.Entries {
		if !slices.Contains(c.and, e.Check.ID) {
			continue
		}
		if e.Verdict == check.Held {
			return false
		}
		agrees = agrees || e.Verdict == check.Failed
	}
	return agrees
}

// broken returns the failures that make the run fail, the gravest first: money before form.
func (r Report) broken() (entries []Entry) {
	for _, e := range r.Entries {
		if e.Broken() {
			entries = append(entries, e)
		}
	}
	rank := func(e Entry) int {
		group, _, _ := strings.Cut(e.Check.ID, "/")
		return slices.Index([]string{"key", "replay", "inflight", "load", "mismatch", "crash", "store", "scope", "once"}, group)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return rank(b) - rank(a) })
	return entries
}

// counted says how often the request ran.
func (r Report) counted(shown Entry) string {
	says := fmt.Sprintf(": one request, sent %s with one key, took effect %s", shown.sent(), times(shown.effects()))
	for _, e := range slices.Backward(r.Entries) {
		if n := e.effects(); n > 1 && slices.Contains(concurrent, e.Check.ID) && e.Check.ID != shown.Check.ID {
			return fmt.Sprintf("%s; sent %s, %s", says, e.sent(), times(n))
		}
	}
	return says
}

// effects returns how many effects the failure tells of, or 0.
func (e Entry) effects() (n int) {
	if e.Verdict == check.Failed {
		_, _ = fmt.Sscanf(e.Got, "%d effects", &n) // other failures have other texts
	}
	return n
}

// sent says how often the check sends its request.
func (e Entry) sent() string {
	if _, n, ok := strings.Cut(e.Check.ID, "concurrent-"); ok && n != "2" {
		return n + " times at one instant"
	} else if ok {
		return "twice at one instant"
	}
	return "twice"
}

func times(n int) string {
	if n == 2 {
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// matches reports whether the pattern is the check's id, or its beginning if it ends in *.
func (e Entry) matches(pattern string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return pattern == e.Check.ID || isPrefix && strings.HasPrefix(e.Check.ID, prefix)
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
