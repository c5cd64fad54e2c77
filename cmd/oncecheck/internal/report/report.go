// Package report writes the results of a run: for people, as JSON, as JUnit's XML and as Markdown.
package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// Report is a run and its results.
type Report struct {
	Target string // the method and URL
	// The name of the key's header; empty: Idempotency-Key.
	KeyHeader string
	Seed      uint64
	Requests  int // that were sent
	Entries   []Entry
	Verbose   bool // Text tells every failure in full
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

// Sums are the numbers of results.
type Sums struct {
	Held   int `json:"held"`
	Failed int `json:"failed"` // that count
	Known  int `json:"known"`  // failures that are expected
	// Failures of a level that does not count.
	Noted    int `json:"noted"`
	NotAsked int `json:"notAsked"`
}

// Sums counts the results.
func (r Report) Sums() (s Sums) {
	of := map[string]*int{
		"held": &s.Held, "FAILED": &s.Failed, "known": &s.Known, "noted": &s.Noted, "not asked": &s.NotAsked,
	}
	for _, e := range r.Entries {
		*of[e.word()]++
	}
	return s
}

// String says the numbers in words.
func (s Sums) String() string {
	text := fmt.Sprintf("%d held, %d failed", s.Held, s.Failed)
	if s.Known > 0 {
		text += fmt.Sprintf(", %d known", s.Known)
	}
	if s.Noted > 0 {
		text += fmt.Sprintf(", %d noted", s.Noted)
	}
	return text + fmt.Sprintf(", %d not asked", s.NotAsked)
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

// texts joins the references, or says that there is none.
func (e Entry) texts() string {
	return cmp.Or(strings.Join(e.Check.Texts, "; "), "no text; correctness demands it")
}
