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

// maxDetails is how many failures Text tells in full.
const maxDetails = 3

// Text writes a table with a line for each check, the gravest failures in full, and at the end, where a terminal shows it,
// the finding.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, e := range r.Entries {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.word(), e.Check.Level, e.Check.ID, e.sentence())
	}
	_ = table.Flush() // into memory
	fmt.Fprintf(&b, "\n%s. %d requests, seed %d.\n", r.Sums(), r.Requests, r.Seed)
	f := r.finding()
	hidden := r.failures(&b, f)
	f.text(&b)
	if hidden > 0 {
		fmt.Fprintf(&b, "%d more failed. ", hidden)
	}
	if f.shown != nil && !r.Verbose {
		b.WriteString("For every failure in full, add -verbose; for one, -only and its id.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// failures writes the gravest failures that the finding does not explain, or all with Verbose. It returns how many it has
// left out.
func (r Report) failures(b *strings.Builder, f finding) (hidden int) {
	if r.Verbose {
		for _, e := range r.Entries {
			if e.Verdict == check.Failed {
				e.details(b)
			}
		}
		return 0
	}
	others := slices.DeleteFunc(r.broken(), func(e Entry) bool { return slices.ContainsFunc(f.explains, e.is) })
	for _, e := range others[:min(len(others), maxDetails)] {
		e.details(b)
	}
	return max(0, len(others)-maxDetails)
}

// is reports whether both are results of one check.
func (e Entry) is(other Entry) bool { return e.Check.ID == other.Check.ID }

// variable matches a header of a curl line whose value is a credential, or a command of the user's.
var variable = regexp.MustCompile(`-H "[^"\s]+: \$[A-Z0-9_]+"|sh -c "\$`)

// text writes the finding, what shows it, and what to do.
func (f finding) text(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n", f.verdict)
	if f.shown != nil {
		fmt.Fprintf(b, "For a customer: %s.\nExpected: %s (%s).\n\n", f.shown.Check.Customer, f.shown.Want, texts(f.shown.Check.Texts))
		lines := Curl(f.shown.Shown)
		for _, line := range lines {
			fmt.Fprintf(b, "    %s\n", line)
		}
		if len(lines) > 0 {
			b.WriteString("\n")
		}
		if slices.ContainsFunc(lines, variable.MatchString) {
			b.WriteString("$AUTHORIZATION and the like stand for the values of your flags.\n\n")
		}
	}
	if len(f.explains) > 1 {
		fmt.Fprintf(b, "This explains %d lines of the table:\n", len(f.explains))
		width := 0
		for _, e := range f.explains {
			if width += len(e.Check.ID) + 1; width > 116 {
				b.WriteString("\n")
				width = len(e.Check.ID) + 1
			}
			if width == len(e.Check.ID)+1 {
				b.WriteString("   ")
			}
			b.WriteString(" " + e.Check.ID)
		}
		b.WriteString("\n\n")
	}
	if f.next != "" {
		fmt.Fprintf(b, "Next: %s\n", f.next)
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
	fmt.Fprintf(b, "  seen:      %s\n", e.Got)
	fmt.Fprintf(b, "  expected:  %s\n", e.Want)
	fmt.Fprintf(b, "  customer:  %s\n", e.Check.Customer)
	fmt.Fprintf(b, "  asked:     %s\n", e.Check.Asserts)
	fmt.Fprintf(b, "  text:      %s\n", texts(e.Check.Texts))
	for i, line := range Curl(e.Shown) {
		if i == 0 {
			b.WriteString("  again:\n")
		}
		fmt.Fprintf(b, "    %s\n", line)
	}
}
