package report

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// A screen has so many lines of failures, and so many characters in one.
const (
	maxLines = 16
	maxWidth = 120
)

// Text writes what does not hold, a line for each cause, the gravest failure with what shows it, and the result. With Verbose
// it writes a table of all checks, and every failure in full.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	if r.Verbose {
		r.table(&b)
	} else {
		r.causes(&b)
	}
	says, next := r.verdict()
	fmt.Fprintf(&b, "\n%s. %d requests, seed %d.\n", r.Sums(), r.Requests, r.Seed)
	if more := r.more(); more != "" {
		fmt.Fprintln(&b, more)
	}
	fmt.Fprintf(&b, "\n%s\n", says)
	if groups := r.groups(); len(groups) > 0 && groups[0].lead.Broken() {
		groups[0].lead.shown(&b)
		if !r.Verbose {
			b.WriteString("For all checks, and every failure in full, add -verbose; for one, -only and its id.\n")
		}
	}
	if next != "" {
		fmt.Fprintf(&b, "Next: %s\n", next)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes a line for each check, and each failure in full.
func (r Report) table(b *strings.Builder) {
	table := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, e := range r.Entries {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.word(), e.Check.Level, e.Check.ID, e.sentence())
	}
	_ = table.Flush() // into memory
	for _, e := range r.Entries {
		if e.Verdict == check.Failed {
			e.details(b)
		}
	}
}

// causes writes a line for each group of failures, no more than a screen has.
func (r Report) causes(b *strings.Builder) {
	groups := r.groups()
	width := 0
	for _, g := range groups {
		width = max(width, len(g.lead.Check.ID))
	}
	for _, g := range groups[:min(len(groups), maxLines)] {
		also := ""
		if len(g.also) > 0 {
			also = fmt.Sprintf(" (and %d more by this)", len(g.also))
		}
		line := fmt.Sprintf("%-6s  %-6s  %-*s  ", g.lead.word(), g.lead.Check.Level, width, g.lead.Check.ID)
		seen := cut(g.lead.Got, 44)
		fmt.Fprintf(b, "%s%s: %s%s\n", line, cut(g.lead.Check.Title, maxWidth-len(line)-len([]rune(seen))-len(also)-2), seen, also)
	}
	if more := len(groups) - maxLines; more > 0 {
		fmt.Fprintf(b, "and %d lines more, which -verbose has\n", more)
	}
}

// cut returns the beginning of a sentence.
func cut(s string, width int) string {
	if runes := []rune(s); len(runes) > width {
		return string(runes[:max(0, width-1)]) + "…"
	}
	return s
}

// variable matches a header of a curl line whose value is a credential, or a command of the user's.
var variable = regexp.MustCompile(`-H "[^"\s]+: \$[A-Z0-9_]+"|sh -c "\$`)

// shown writes what the failure means, and what shows it.
func (e Entry) shown(b *strings.Builder) {
	fmt.Fprintf(b, "For a customer: %s.\nExpected: %s (%s).\n\n", e.Check.Customer, e.Want, e.texts())
	lines := Curl(e.Shown)
	for _, line := range lines {
		fmt.Fprintf(b, "    %s\n", line)
	}
	if len(lines) > 0 {
		b.WriteString("\n")
	}
	if slices.ContainsFunc(lines, variable.MatchString) {
		b.WriteString("$AUTHORIZATION and the like stand for the values of your flags. ")
	}
}

// String says the numbers in words.
func (s Sums) String() string {
	parts := []string{fmt.Sprintf("%d held", s.Held), fmt.Sprintf("%d failed", s.Failed)}
	if s.Known > 0 {
		parts = append(parts, fmt.Sprintf("%d known", s.Known))
	}
	if s.Noted > 0 {
		parts = append(parts, fmt.Sprintf("%d noted", s.Noted))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d not asked", s.NotAsked)), ", ")
}

// details writes what a failure means and how to see it again.
func (e Entry) details(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s %s %s: %s\n", e.word(), e.Check.Level, e.Check.ID, e.Check.Title)
	for _, fact := range e.facts() {
		fmt.Fprintf(b, "  %-10s %s\n", fact[0]+":", fact[1])
	}
	for i, line := range Curl(e.Shown) {
		if i == 0 {
			b.WriteString("  again:\n")
		}
		fmt.Fprintf(b, "    %s\n", line)
	}
}
