package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// jsonCheck is an entry with what a failure has beside it.
type jsonCheck struct {
	Entry
	Customer string            `json:"customer,omitempty"`
	Texts    []check.Reference `json:"texts,omitempty"`
	Curl     []string          `json:"curl,omitempty"`
}

// JSON writes the report as one JSON object. Later versions only add members.
func (r Report) JSON(w io.Writer) error {
	checks := make([]jsonCheck, len(r.Entries))
	for i, e := range r.Entries {
		if checks[i].Entry = e; e.Verdict == check.Failed {
			checks[i] = jsonCheck{e, e.Check.Customer, e.Check.Texts, Curl(e.Shown)}
		}
	}
	headline, _ := r.verdict() // the result in one or two sentences
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{
		"target": r.Target, "seed": r.Seed, "requests": r.Requests, "summary": r.Sums(), "headline": headline, "checks": checks,
	})
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes the report as JUnit's XML. What was not asked, and a failure that does not count, is skipped there.
func (r Report) JUnit(w io.Writer) error {
	suite := junitSuite{Name: "oncecheck " + r.Target, Tests: len(r.Entries)}
	for _, e := range r.Entries {
		group, _, _ := strings.Cut(e.Check.ID, "/")
		c := junitCase{Class: "oncecheck." + group, Name: e.Check.ID}
		switch {
		case e.Broken():
			var text strings.Builder
			e.details(&text)
			c.Failure = &junitMessage{Message: e.sentence(), Text: text.String()}
			suite.Failures++
		case e.Verdict != check.Held:
			c.Skipped = &junitMessage{Message: e.word() + ": " + e.sentence()}
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	out, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, out)
	return err
}
