// Package report writes the results of a run: for people, as JSON, as JUnit's XML and as Markdown.
package report

import (
	"fmt"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// Report is a run and its results.
type Report struct {
	Target   string // the method and URL
	Requests int    // that were sent
	Entries  []Entry
	Verbose  bool // Text tells every failure in full
}

// Entry is a result and what it means for the exit code.
type Entry struct {
	check.Result
	Counts bool `json:"counts"` // a failure of this level counts
	Known  bool `json:"known"`  // the user expects the failure
}

// Broken reports whether the entry is a failure that makes the run fail.
func (e Entry) Broken() bool { return e.word() == "FAILED" }

// word is the verdict as people read it.
func (e Entry) word() string {
	switch {
	case e.Verdict != check.Failed:
		return string(e.Verdict)
	case e.Known:
		return "known"
	case e.Counts:
		return "FAILED"
	}
	return "noted"
}

// Sums are the numbers of results by their word.
type Sums map[string]int

// Sums counts the results.
func (r Report) Sums() Sums {
	s := Sums{"held": 0, "failed": 0, "known": 0, "noted": 0, "not asked": 0}
	for _, e := range r.Entries {
		s[strings.ToLower(e.word())]++
	}
	return s
}

// String says the numbers in words. There are always some that held, failed and were not asked.
func (s Sums) String() string {
	var all []string
	for _, word := range []string{"held", "failed", "known", "noted", "not asked"} {
		if s[word] > 0 || word != "known" && word != "noted" {
			all = append(all, fmt.Sprint(s[word], " ", word))
		}
	}
	return strings.Join(all, ", ")
}

// sentence says what was seen, or what holds.
func (e Entry) sentence() string {
	switch {
	case e.Verdict == check.NotAsked:
		return e.Sentence
	case e.Sentence == "":
		return e.Check.Title
	case e.Verdict == check.Held:
		return e.Check.Title + " (" + e.Sentence + ")"
	}
	return e.Check.Title + ": " + e.Sentence
}
