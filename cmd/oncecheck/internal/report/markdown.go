package report

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes the report for a page such as GitHub's summary of a job.
func (r Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## oncecheck: %s\n\n`%s`: %s.\n", headline(r.Sums()), r.Target, r.Sums())
	says, next := r.verdict()
	fmt.Fprintf(&b, "\n%s\n", cell(says))
	if next != "" {
		fmt.Fprintf(&b, "\nNext: %s\n", cell(next))
	}
	for _, g := range r.groups() {
		if g.lead.Counts {
			g.section(&b)
		}
	}
	b.WriteString("\n<details><summary>All checks</summary>\n\n| | Level | Check | |\n|---|---|---|---|\n")
	for _, e := range r.Entries {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", e.word(), e.Check.Level, e.Check.ID, cell(e.sentence()))
	}
	b.WriteString("\n</details>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func headline(s Sums) string {
	if s.Failed > 0 {
		return fmt.Sprintf("%d failed", s.Failed)
	}
	return "all that was asked holds"
}

// section writes one failure, and names those that have its cause.
func (g group) section(b *strings.Builder) {
	e := g.lead
	fmt.Fprintf(b, "\n### %s `%s`\n\n%s\n\n", e.word(), e.Check.ID, cell(e.Check.Title))
	b.WriteString("| | |\n|---|---|\n")
	for _, fact := range e.facts() {
		fmt.Fprintf(b, "| %s | %s |\n", fact[0], cell(fact[1]))
	}
	if len(g.also) > 0 {
		fmt.Fprintf(b, "\n%d more failures have this cause.\n", len(g.also))
	}
	if lines := Curl(e.Shown); len(lines) > 0 {
		fmt.Fprintf(b, "\n~~~sh\n%s\n~~~\n", strings.ReplaceAll(strings.Join(lines, "\n"), "~~~", "~ ~ ~"))
	}
}

// markup are the characters that a server could use to write its own page.
var markup = strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", "&lt;", ">", "&gt;", "`", "\\`", "[", `\[`, "]", `\]`, "*", `\*`, "_", `\_`, "\n", " ", "\r", " ")

// cell returns text for a cell of a table.
func cell(s string) string { return markup.Replace(s) }
