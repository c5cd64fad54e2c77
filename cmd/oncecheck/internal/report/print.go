package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// A screen has so many lines of failures, and so many characters in one.
const maxLines, maxWidth = 16, 120

// Text writes what does not hold, a line for each failure, the gravest with what shows it, and the result. With Verbose
// it writes a table of all checks, and every failure in full.
func (r Report) Text(w io.Writer) error {
	var b bytes.Buffer
	failures := r.failures()
	if r.Verbose {
		r.table(&b)
	} else {
		screen(&b, failures)
	}
	says, help := r.verdict()
	fmt.Fprintf(&b, "\n%s. %d requests.\n%s\n%s\n", r.Sums(), r.Requests, r.more(), says)
	if !r.Verbose && len(failures) > 0 && failures[0].Broken() {
		fmt.Fprintf(&b, "%s\n$AUTHORIZATION and the like stand for the values of your flags. "+
			"For all checks, and every failure in full, add -verbose; for one, -only and its id.\n", failures[0].details())
	}
	if help != "" {
		fmt.Fprintf(&b, "Next: %s\n", help)
	}
	_, err := b.WriteTo(w)
	return err
}

// table writes a line for each check, and each failure in full.
func (r Report) table(b *bytes.Buffer) {
	table := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, e := range r.Entries {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.word(), e.Check.Level, e.Check.ID, e.sentence())
	}
	_ = table.Flush() // into memory
	for _, e := range r.Entries {
		if e.Verdict == check.Failed {
			b.WriteString(e.details())
		}
	}
}

// screen writes a line for each failure, no more than a screen has.
func screen(b *bytes.Buffer, failures []Entry) {
	for _, e := range failures[:min(len(failures), maxLines)] {
		line := fmt.Sprintf("%-6s  %-6s  %-26s  ", e.word(), e.Check.Level, e.Check.ID)
		end := ": " + cut(e.Got, 44)
		fmt.Fprintf(b, "%s%s%s\n", line, cut(e.Check.Title, maxWidth-len(line)-len([]rune(end))), end)
	}
	if more := len(failures) - maxLines; more > 0 {
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

// details says what a failure means and how to see it again.
func (e Entry) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s %s %s: %s\n", e.word(), e.Check.Level, e.Check.ID, e.Check.Title)
	fmt.Fprintf(&b, "  seen:      %s\n  expected:  %s\n  customer:  %s\n  text:      %s\n",
		e.Got, e.Want, e.Check.Customer(),
		cmp.Or(strings.Join(e.Check.Texts, "; "), "no text; correctness demands it"))
	for i, line := range Curl(e.Shown) {
		if i == 0 {
			b.WriteString("  again:\n")
		}
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

// Markdown writes the report for a page such as GitHub's summary of a job. A server cannot end the block.
func (r Report) Markdown(w io.Writer) error {
	var b bytes.Buffer
	r.Verbose = true
	if err := r.Text(&b); err != nil {
		return err
	}
	text := strings.ReplaceAll(b.String(), "~~~", "~ ~ ~")
	_, err := fmt.Fprintf(w, "## oncecheck: %s\n\n~~~text\n%s~~~\n", r.Sums(), text)
	return err
}

// jsonCheck is an entry with what a failure has beside it.
type jsonCheck struct {
	Entry
	Customer string   `json:"customer,omitempty"`
	Texts    []string `json:"texts,omitempty"`
	Curl     []string `json:"curl,omitempty"`
}

// JSON writes the report as one JSON object. Later versions only add members.
func (r Report) JSON(w io.Writer) error {
	checks := make([]jsonCheck, len(r.Entries))
	for i, e := range r.Entries {
		if checks[i].Entry = e; e.Verdict == check.Failed {
			checks[i] = jsonCheck{e, e.Check.Customer(), e.Check.Texts, Curl(e.Shown)}
		}
	}
	headline, _ := r.verdict() // the result in one or two sentences
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{
		"target": r.Target, "requests": r.Requests,
		"summary": r.Sums(), "headline": headline, "checks": checks,
	})
}

// JUnit writes the report as JUnit's XML. What was not asked, and a failure that does not count, is skipped there.
func (r Report) JUnit(w io.Writer) error {
	var b bytes.Buffer
	s := r.Sums()
	fmt.Fprintf(&b, "%s<testsuite name=\"%s\" tests=\"%d\" failures=\"%d\" skipped=\"%d\">\n", xml.Header,
		escape("oncecheck "+r.Target), len(r.Entries), s["failed"], s["known"]+s["noted"]+s["not asked"])
	for _, e := range r.Entries {
		group, _, _ := strings.Cut(e.Check.ID, "/")
		fmt.Fprintf(&b, "  <testcase classname=\"oncecheck.%s\" name=\"%s\">", group, e.Check.ID)
		switch sentence := escape(e.sentence()); {
		case e.Broken():
			fmt.Fprintf(&b, "<failure message=\"%s\">%s</failure>", sentence, escape(e.details()))
		case e.Verdict != check.Held:
			fmt.Fprintf(&b, "<skipped message=\"%s: %s\"></skipped>", e.word(), sentence)
		}
		b.WriteString("</testcase>\n")
	}
	b.WriteString("</testsuite>\n")
	_, err := b.WriteTo(w)
	return err
}

// escape returns text for an attribute or an element.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // into memory
	return b.String()
}
