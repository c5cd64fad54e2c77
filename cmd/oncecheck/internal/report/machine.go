package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

type jsonReport struct {
	Target   string      `json:"target"`
	Seed     uint64      `json:"seed"`
	Requests int         `json:"requests"`
	Summary  Sums        `json:"summary"`
	Headline string      `json:"headline"` // the result in one or two sentences
	Checks   []jsonCheck `json:"checks"`
}

type jsonCheck struct {
	ID       string            `json:"id"`
	Level    check.Level       `json:"level"`
	Verdict  check.Verdict     `json:"verdict"`
	Counts   bool              `json:"counts"` // a failure makes the run fail, unless it is known
	Known    bool              `json:"known"`
	Title    string            `json:"title"`
	Sentence string            `json:"sentence,omitempty"`
	Want     string            `json:"want,omitempty"`
	Got      string            `json:"got,omitempty"`
	Customer string            `json:"customer,omitempty"`
	Texts    []check.Reference `json:"texts,omitempty"`
	Curl     []string          `json:"curl,omitempty"`
}

// JSON writes the report as one JSON object. Later versions only add members.
func (r Report) JSON(w io.Writer) error {
	headline, _ := r.verdict()
	out := jsonReport{Target: r.Target, Seed: r.Seed, Requests: r.Requests, Summary: r.Sums(), Headline: headline, Checks: []jsonCheck{}}
	for _, e := range r.Entries {
		c := jsonCheck{ID: e.Check.ID, Level: e.Check.Level, Verdict: e.Verdict, Counts: e.Counts, Known: e.Known,
			Title: e.Check.Title, Sentence: e.Sentence, Want: e.Want, Got: e.Got}
		if e.Verdict == check.Failed {
			c.Customer, c.Texts, c.Curl = e.Check.Customer, e.Check.Texts, Curl(e.Shown)
		}
		out.Checks = append(out.Checks, c)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
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
