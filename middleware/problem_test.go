package middleware_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	words "github.com/onceguard/onceguard/internal/problem"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// How a problem is written, as a document and as a page, is in internal/problem.

// problem is a row of the table of problems: the status, whether the same request may succeed later, and the outcomes
// that an Event may have.
type problem struct {
	status   int
	retry    bool
	both     bool // retry depends on more than the type
	outcomes []middleware.Outcome
}

// problems is the table of problems in docs/reference.md, by their type.
var problems = sync.OnceValue(func() map[string]problem {
	table := map[string]problem{}
	for _, row := range referenceTable("Problems") {
		p := problem{retry: row[2] == "yes", both: strings.Contains(row[2], ";")}
		p.status, _ = strconv.Atoi(row[1])
		for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(row[4], -1) {
			p.outcomes = append(p.outcomes, middleware.Outcome(m[1]))
		}
		table[strings.Trim(row[0], "`")] = p
	}
	return table
})

// checkProblem compares what a client got with the table, if it is a problem. Every answer that a site gives is checked.
func checkProblem(t *testing.T, a answer) {
	t.Helper()
	name := a.problem()
	if name == "" {
		return
	}
	want, known := problems()[name]
	retry := a.header.Get("X-Should-Retry")
	_, hasAfter := a.header["Retry-After"]
	if !known || a.status != want.status || retry != strconv.FormatBool(want.retry) && !want.both || hasAfter != (retry == "true") {
		t.Errorf("%s: %d, %v; want %+v", name, a.status, a.header, want)
	}
}

const secret = "the-secret-key-<b>"

// A refusal is a problem in full, and the key that the client sent is nowhere: in no answer, no Event, and not in Redis. A
// shopper can read out the number by which support staff finds the key.
//
// conformance: 34, 35, 36
func TestProblem(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, middleware.FromContext(r.Context()).Key())
		}, middleware.WithRequired())
		first := s.send(key(`"`+secret+`"`), user("ann-the-user"))
		e := s.want(first, http.StatusOK, middleware.Executed)
		if first.body != e.Key || e.Key == "" {
			t.Errorf("Execution.Key %q, Event.Key %q, want the same", first.body, e.Key)
		}
		value, _ := b.Raw(t, e.Key)
		seen := value + fmt.Sprintf("%+v", e)
		for name, edits := range map[string][]edit{
			"key-invalid": {key(`"` + secret)},
			"key-missing": {noKey},
			"key-reused":  {key(`"` + secret + `"`), user("ann-the-user"), body("text/plain", "other")},
		} {
			a := s.send(edits...)
			e := s.event()
			_, hash, _ := strings.Cut(e.Key, "}")
			want := map[string]string{"key-reused": "urn:onceguard:key:" + hash}[name]
			var p middleware.Problem
			d := json.NewDecoder(strings.NewReader(a.body))
			d.DisallowUnknownFields()
			if err := d.Decode(&p); err != nil || a.problem() != name || p.Status != a.status || p.Instance != want || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %v in %s, %v", name, err, a.body, a.header)
			}
			page := s.send(append(edits, header("Accept", "text/html"))...)
			s.event()
			if isShown := strings.Contains(page.body, "<code>"+hash+"</code>"); !strings.Contains(page.body, "<h1>") || isShown != (want != "") {
				t.Errorf("%s: the page is %s", name, page.body)
			}
			seen += fmt.Sprintf("%+v %+v %+v", a, e, page)
		}
		if strings.Contains(seen, secret) || strings.Contains(seen, "ann-the-user") {
			t.Errorf("the key or the user is in %s", seen)
		}
	})
}

// The detail names the place where the key belongs.
func TestKeyMissingNamesThePlace(t *testing.T) {
	t.Parallel()
	s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("X-Key"), payOnce(), middleware.WithRequired())
	a := s.send(noKey)
	s.want(a, http.StatusBadRequest, middleware.MissingKey)
	if got := a.detail(t); !strings.Contains(got, " in the header X-Key,") {
		t.Errorf("detail %q", got)
	}
}

// WithProblem replaces the writing alone. A refusal has its Event even if the function panics.
func TestWithProblem(t *testing.T) {
	t.Parallel()
	for name, panics := range map[string]bool{"writes": false, "panics": true} {
		s := serve(t, redistest.Mini(t), payOnce(), middleware.WithRequired(),
			middleware.WithProblem(func(w http.ResponseWriter, _ *http.Request, p middleware.Problem) {
				if panics {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(p.Status)
				_, _ = io.WriteString(w, "ours: "+p.Type)
			}))
		a, err := s.try(s.request(noKey, noRetry))
		if e := s.event(); e.Outcome != middleware.MissingKey || e.Status != http.StatusBadRequest || panics != (err != nil) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if !panics && (a.body != "ours: urn:onceguard:problem:key-missing" || a.header.Get("Cache-Control") != "no-store") {
			t.Errorf("%+v", a)
		}
		s.wantRuns(0)
	}
}

// Each kind of answer is in the table of problems, and in that of Events.
func TestReferenceOutcomes(t *testing.T) {
	t.Parallel()
	listed := map[middleware.Outcome]bool{}
	for _, row := range referenceTable("Events") {
		listed[middleware.Outcome(strings.Trim(row[0], "`"))] = true
	}
	seen := map[string]bool{}
	for kind := run.InFlight; kind < run.KindCount; kind++ {
		a, sent := kind.Answer(), words.New(kind)
		name := strings.TrimPrefix(sent.Type, words.TypePrefix)
		p, ok := problems()[name]
		isListed := false
		for _, outcome := range p.outcomes {
			isListed = isListed || outcome == a.Outcome
		}
		if seen[name] = true; !ok || p.status != sent.Status || p.retry != a.Retry && !p.both || !isListed {
			t.Errorf("%s: %+v, the table has %+v", name, a, p)
		}
	}
	for name := range problems() {
		if !seen[name] {
			t.Errorf("there is no problem %s", name)
		}
	}
	for _, outcome := range []middleware.Outcome{
		middleware.Executed, middleware.CookiesDropped, middleware.NotStored, middleware.Freed, middleware.Unknown, middleware.Panicked,
		middleware.LeaseLost, middleware.Unprotected, middleware.Replayed,
	} {
		if !listed[outcome] {
			t.Errorf("the table of Events lacks %s", outcome)
		}
	}
}

// The tables of docs/reference.md are tied to the code: what only one of the two has fails a test.

var reference = sync.OnceValue(func() string {
	text, err := os.ReadFile("../docs/reference.md")
	if err != nil {
		panic(err)
	}
	return string(text)
})

// referenceTable returns the cells of the first table under a heading of docs/reference.md, without its head.
func referenceTable(heading string) (rows [][]string) {
	_, section, _ := strings.Cut(reference(), "\n## "+heading+"\n")
	_, table, _ := strings.Cut(section, "|---|")
	_, table, _ = strings.Cut(table, "\n")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}
