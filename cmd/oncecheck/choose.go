package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/plan"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/report"
)

// choose returns the checks that -only and -skip leave, with the levels of -at-most-once.
func (o *options) choose() ([]plan.Check, error) {
	for _, pattern := range slices.Concat(o.only, o.skip) {
		if !slices.ContainsFunc(plan.All(), func(c plan.Check) bool { return matches(pattern, c.ID) }) {
			return nil, fmt.Errorf("there is no check %q: -list has them all", pattern)
		}
	}
	var chosen []plan.Check
	for _, c := range plan.All() {
		isIt := func(pattern string) bool { return matches(pattern, c.ID) }
		if len(o.only) > 0 && !slices.ContainsFunc(o.only, isIt) || slices.ContainsFunc(o.skip, isIt) {
			continue
		}
		if c.ID == "crash/at-most-once" && o.atMostOnce {
			c.Level = plan.Must
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

// matches reports whether an id is the pattern, or begins with it if it ends in *.
func matches(pattern, id string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return pattern == id || isPrefix && strings.HasPrefix(id, prefix)
}

// counts reports whether a failure of the level makes the run fail.
func (o *options) counts(level plan.Level) bool {
	return level == plan.Must || level == plan.Should && o.strict
}

// parseExpected reads known failures: one id a line. What follows # is a comment.
func parseExpected(text string) (ids []string, err error) {
	for i, line := range strings.Split(text, "\n") {
		id, _, _ := strings.Cut(line, "#")
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		if _, ok := plan.Find(id); !ok {
			return nil, fmt.Errorf("line %d: there is no check %q", i+1, id)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// surprises returns a line for each known failure that did not fail, although it was to be asked.
func surprises(expected []string, entries []report.Entry) (lines []string) {
	for _, e := range entries {
		if !slices.Contains(expected, e.Check.ID) || e.Verdict == check.Failed {
			continue
		}
		if e.Verdict == check.Held {
			lines = append(lines, e.Check.ID+" is a known failure, and holds now: remove it from -expect")
		} else {
			lines = append(lines, e.Check.ID+" is a known failure, and was not asked: "+e.Sentence)
		}
	}
	return lines
}
