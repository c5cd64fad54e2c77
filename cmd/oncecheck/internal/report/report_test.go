package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/report"
)

var update = flag.Bool("update", false, "write the golden files")

// row returns a check that does not change with the table.
func row(id string, level check.Level) check.Check {
	return check.Check{ID: id, Level: level, Title: "a repetition does not run again",
		Texts: []string{check.Draft26}, Needs: check.Effects}
}

func request(key string) ask.Request {
	return ask.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:8080", Path: "/payments"},
		Op: ask.Operation{Key: key},
		Header: []ask.Field{{Name: "Authorization", Value: "Bearer secret", Variable: "AUTHORIZATION"},
			{Name: "Idempotency-Key", Value: `"` + key + `"`}},
		Body: []byte(`{"amount":1001,"note":"it's"}`)}
}

func answered(r ask.Request, status int, body string) ask.Exchange {
	return ask.Exchange{Request: r, Response: &ask.Response{Status: status, Header: http.Header{}, Body: []byte(body)}}
}

// sample has a result of every kind.
func sample() report.Report {
	once := request("key-1")
	both := request("key-2")
	both.AtOnce = true
	failure := check.Result{Check: row("once/concurrent", check.Must), Verdict: check.Failed,
		Sentence: "2 effects, want one effect", Got: "2 effects", Want: "one effect",
		Shown: []ask.Exchange{answered(once, 201, `{"id":"<1>|2"}`), answered(both, 201, `{"id":"2"}`), answered(both,
			409, ""), {Request: both, Err: errors.New("no answer within 10s")}}}
	noted, known := failure, failure
	noted.Check, noted.Shown = row("replay/marked", check.Advice), nil
	known.Check, known.Shown = row("mismatch/body", check.Must), nil
	return report.Report{Target: "POST http://127.0.0.1:8080/payments", Requests: 42, Entries: []report.Entry{
		{Result: check.Result{Check: row("once/repeat", check.Must), Verdict: check.Held}, Counts: true},
		{Result: check.Result{Check: row("once/instances-concurrent", check.Must), Verdict: check.Held,
			Sentence: "up to 7 of 10 at once"}, Counts: true},
		{Result: failure, Counts: true},
		{Result: noted},
		{Result: known, Counts: true, Known: true},
		{Result: check.Result{Check: row("scope/user", check.Must), Verdict: check.NotAsked,
			Sentence: "give -H2, the headers of a second user"}, Counts: true},
	}}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	r, verbose := sample(), sample()
	verbose.Verbose = true
	for name, write := range map[string]func(io.Writer) error{"text": r.Text, "verbose.text": verbose.Text, "json": r.JSON, "junit.xml": r.JUnit, "md": r.Markdown} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "report."+name)
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got.Bytes(), want)
		}
		if strings.Contains(got.String(), "secret") {
			t.Errorf("%s shows a credential", name)
		}
	}
}

// result returns a failure with what was seen; or a check that holds, for "held", or was not asked, for "give -x".
func result(id, got string) report.Entry {
	r := check.Result{Check: row(id, check.Must), Verdict: check.Failed, Got: got, Want: "one effect",
		Sentence: got + ", want one effect"}
	r.Shown = []ask.Exchange{answered(request("key-1"), 201, `{"id":1}`), answered(request("key-1"), 201, `{"id":2}`)}
	switch {
	case got == "held":
		r = check.Result{Check: r.Check, Verdict: check.Held}
	case strings.HasPrefix(got, "give "):
		r = check.Result{Check: r.Check, Verdict: check.NotAsked, Sentence: got}
	}
	return report.Entry{Result: r, Counts: true}
}

// results has a failure, or another result, for each id and what was seen.
func results(all ...string) (entries []report.Entry) {
	for _, one := range all {
		id, got, _ := strings.Cut(one, ": ")
		entries = append(entries, result(id, got))
	}
	return entries
}

// The end of a report says the result to a reader who does not know the checks.
func TestFinding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries []report.Entry
		want    []string // in this order
	}{
		"the gravest first": {
			results("key/quoted: 400", "replay/status: 200", "scope/user: x", "once/repeat: 2 effects", "mismatch/body: x"),
			[]string{
				"FAILED  MUST    once/repeat                 a repetition does not run again: 2 effects\n",
				"FAILED  MUST    scope/user ", "FAILED  MUST    mismatch/body", "FAILED  MUST    replay/status",
				"FAILED  MUST    key/quoted",
				"payments fails once/repeat. It should hold that a repetition does not run again; seen: 2 effects.\n",
				"  customer:  charged twice\n", "    KEY=$(printf ", "\n    curl ", `{"id":1}`, `{"id":2}`,
				"$AUTHORIZATION and the like", "-verbose", "Next: Store the response", "-only once/repeat",
			},
		},
		"all held": {
			results("once/repeat: held", "inflight/once: give -slow, a query", "inflight/time: give -slow, a query",
				"scope/user: give -H2, the headers"),
			[]string{"With these flags more checks can be asked: -slow, -H2. For what they mean: oncecheck -h.\n",
				"payments: all that was asked holds.\n"},
		},
		"not seen": {
			results("key/quoted: held", "once/repeat: give -effects: the responses have no id"),
			[]string{"could not see whether a repeated request runs again.", "Next: For that, give -effects: the responses"},
		},
		"nothing asked": {results("scope/user: give -H2, x"), []string{"-H2. ", "payments: nothing could be asked."}},
	} {
		var out bytes.Buffer
		r := report.Report{Target: "POST http://127.0.0.1:8080/payments", Entries: c.entries}
		if err := r.Text(&out); err != nil {
			t.Fatal(err)
		}
		rest := out.String()
		for _, want := range c.want {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("%s: no %q in\n%s", name, want, rest)
			}
			rest = after
		}
	}
}

// A report is no more than a screen, and what was seen stands in each line. fault: 154 lines and 2,100 words.
func TestTextIsAScreen(t *testing.T) {
	t.Parallel()
	r := report.Report{Target: "POST http://127.0.0.1:8080/payments"}
	for _, c := range check.All() {
		e := result(c.ID, "seen "+strings.Repeat("very much ", 30))
		e.Check.Title = strings.Repeat("a long title ", 20)
		r.Entries = append(r.Entries, e)
	}
	var out bytes.Buffer
	if err := r.Text(&out); err != nil {
		t.Fatal(err)
	}
	table, rest, _ := strings.Cut(out.String(), "\n\n")
	for line := range strings.Lines(table) {
		if n := len([]rune(line)); n > 121 || !strings.Contains(line, "seen very") && !strings.HasPrefix(line, "and ") {
			t.Errorf("%d: %s", n, line)
		}
	}
	if strings.Count(out.String(), "\n") > 40 || !strings.Contains(rest, "-verbose") {
		t.Error(out.String())
	}
}

// A program can read what a server has sent.
func TestMachinesReadIt(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := sample()
	r.Entries[2].Got = "\x00 \x1b[31m ]]> \xff"
	if err := r.JSON(&out); err != nil || !json.Valid(out.Bytes()) {
		t.Errorf("JSON: %v\n%s", err, out.Bytes())
	}
	out.Reset()
	var suite struct {
		Failures int `xml:"failures,attr"`
	}
	if err := errors.Join(r.JUnit(&out), xml.Unmarshal(out.Bytes(), &suite)); err != nil || suite.Failures != 1 {
		t.Errorf("%v, %+v", err, suite)
	}
}
