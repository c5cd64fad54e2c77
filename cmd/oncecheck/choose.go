package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/report"
)

// choose returns the checks that -only, -skip, -key and -profile leave, with the levels of -at-most-once and -profile.
func (o *options) choose() ([]check.Check, error) {
	for _, pattern := range slices.Concat(o.only, o.skip) {
		if !slices.ContainsFunc(check.All(), func(c check.Check) bool { return c.Is(pattern) }) {
			return nil, fmt.Errorf("there is no check %q: -list has them all", pattern)
		}
	}
	var chosen []check.Check
	for _, c := range check.All() {
		if len(o.only) > 0 && !slices.ContainsFunc(o.only, c.Is) || slices.ContainsFunc(o.skip, c.Is) || !o.profile.asks(c) ||
			o.isOpaque() && slices.Contains(structured, c.ID) {
			continue
		}
		if c.ID == "crash/at-most-once" && o.atMostOnce || slices.Contains(o.profile.must, c.ID) {
			c.Level = check.Must
		}
		chosen = append(chosen, c)
	}
	if len(chosen) == 0 {
		return nil, errors.New("-only, -skip, -key and -profile leave no check: -list names those that only a profile asks")
	}
	return chosen, nil
}

// counts reports whether a failure of the level makes the run fail.
func (o *options) counts(level check.Level) bool {
	return level == check.Must || level == check.Should && o.strict
}

// parseExpected reads known failures: one id a line. What follows # is a comment.
func parseExpected(text string) (ids []string, err error) {
	for i, line := range strings.Split(text, "\n") {
		id, _, _ := strings.Cut(line, "#")
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		known, ok := check.Find(id)
		if !ok {
			return nil, fmt.Errorf("line %d: there is no check %q", i+1, id)
		}
		ids = append(ids, known.ID)
	}
	return ids, nil
}

// surprises returns a line for each known failure that did not fail, although it was to be asked.
func surprises(entries []report.Entry) (lines []string) {
	for _, e := range entries {
		switch {
		case !e.Known || e.Verdict == check.Failed:
		case e.Verdict == check.Held:
			lines = append(lines, e.Check.ID+" is a known failure, and holds now: remove it from -expect")
		default:
			lines = append(lines, e.Check.ID+" is a known failure, and was not asked: "+e.Sentence)
		}
	}
	return lines
}
