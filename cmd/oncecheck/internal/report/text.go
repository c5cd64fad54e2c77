package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// Text writes a table with a line for each check, and below it what is to be known of each failure.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, e := range r.Entries {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.word(), e.Check.Level, e.Check.ID, e.sentence())
	}
	_ = table.Flush() // into memory
	for _, e := range r.Entries {
		if e.Verdict == check.Failed {
			e.details(&b)
		}
	}
	fmt.Fprintf(&b, "\n%s: %s. %d requests, seed %d.\n", r.Target, r.Sums(), r.Requests, r.Seed)
	_, err := io.WriteString(w, b.String())
	return err
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
