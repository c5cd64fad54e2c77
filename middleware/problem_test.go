package middleware_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

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
	if !known {
		t.Errorf("%s is not in the table", name)
	}
	if a.status != want.status {
		t.Errorf("%s: status %d, want %d", name, a.status, want.status)
	}
	if want.both {
		want.retry = a.header.Get("X-Should-Retry") == "true"
	}
	if got := a.header["X-Should-Retry"]; len(got) != 1 || got[0] != strconv.FormatBool(want.retry) {
		t.Errorf("%s: X-Should-Retry %q, want %t", name, got, want.retry)
	}
	after, hasAfter := a.header["Retry-After"]
	if hasAfter != want.retry {
		t.Errorf("%s: Retry-After %q, want one: %t", name, after, want.retry)
	}
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); hasAfter && (err != nil || n < 1) {
		t.Errorf("%s: Retry-After %q, want whole seconds from 1 on", name, after)
	}
}

// Every problem there is, as a client gets it.
func TestProblemTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range middleware.Problems() {
		w := httptest.NewRecorder()
		middleware.Refuse(w, httptest.NewRequest(http.MethodPost, "/", nil), p)
		a := answer{status: w.Code, header: w.Header(), body: w.Body.String()}
		if a.problem() == "" {
			t.Errorf("no problem: %+v", a)
		}
		checkProblem(t, a)
		seen[a.problem()] = true
		if p.Retryable != (p.RetryAfter > 0) {
			t.Errorf("%s: Retryable %t, RetryAfter %v", p.Type, p.Retryable, p.RetryAfter)
		}
	}
	for name := range problems() {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// A replayed 5xx tells the client not to retry. No other replay gets that header.
func TestReplayedFailureIsNotRetried(t *testing.T) {
	for _, test := range []struct {
		status    int
		own, want string // what the handler says, and the replay
	}{
		{http.StatusCreated, "", ""},
		{http.StatusUnprocessableEntity, "true", "true"},
		{http.StatusInternalServerError, "", "false"},
		{http.StatusServiceUnavailable, "true", "false"},
	} {
		t.Run(strconv.Itoa(test.status), func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
					if test.own != "" {
						w.Header().Set("X-Should-Retry", test.own)
					}
					w.WriteHeader(test.status)
				}, middleware.WithAtMostOnce())
				first, again := s.send(), s.send()
				s.want(first, test.status, middleware.Executed)
				s.want(again, test.status, middleware.Replayed)
				if got := first.header.Get("X-Should-Retry"); got != test.own {
					t.Errorf("the first response: X-Should-Retry %q, want %q", got, test.own)
				}
				if got := again.header.Get("X-Should-Retry"); got != test.want {
					t.Errorf("the replay: X-Should-Retry %q, want %q", got, test.want)
				}
			})
		})
	}
}

const secret = "the-secret-key-<b>"

// conformance: 34, 35
func TestProblem(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), payOnce(), middleware.WithRequired())
	s.want(s.send(key(`"`+secret+`"`)), http.StatusCreated, middleware.Executed)
	titles := map[string]string{}
	for name, edits := range map[string][]edit{
		"key-invalid":  {key(`"` + secret)},
		"key-invalid ": {key(secret + ", again")},
		"key-missing":  {noKey},
		"key-reused":   {key(`"` + secret + `"`), body("text/plain", "other")},
	} {
		name = strings.TrimSpace(name)
		a := s.send(edits...)
		for field, want := range map[string]string{
			"Content-Type":     "application/problem+json",
			"Cache-Control":    "no-store",
			"Content-Language": "en",
			"Link":             `<https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07>; rel="describedby"`,
		} {
			if got := a.header.Get(field); got != want {
				t.Errorf("%s: %s: %q, want %q", name, field, got, want)
			}
		}
		var p middleware.Problem
		d := json.NewDecoder(strings.NewReader(a.body))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			t.Errorf("%s: %v in %s", name, err, a.body)
		}
		if p.Type != "urn:onceguard:problem:"+name || p.Status != a.status || p.Title == "" || p.Detail == "" {
			t.Errorf("%s: %d, %+v", name, a.status, p)
		}
		if was := titles[name]; was != "" && was != p.Title {
			t.Errorf("%s: title %q, and then %q", name, was, p.Title)
		}
		titles[name] = p.Title
		want := ""
		if e := s.event(); e.Key != "" {
			_, hash, _ := strings.Cut(e.Key, "}")
			want = "urn:onceguard:key:" + hash
		}
		if p.Instance != want || (want == "") != (name != "key-reused") || want != "" && len(want) != 18+64 {
			t.Errorf("%s: instance %q, want %q", name, p.Instance, want)
		}
		if strings.Contains(a.body, secret) || strings.Contains(fmt.Sprint(a.header), secret) {
			t.Errorf("%s echoes the key: %+v", name, a)
		}
	}
}

// The detail names the place where the key belongs, and has no other text of the key function.
func TestKeyMissingNamesThePlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key  keyfunc.Func
		want string
	}{
		"standard": {keyfunc.Standard(keyfunc.BasicUser()), " in the header Idempotency-Key,"},
		"first":    {keyfunc.First(keyfunc.Header("X-Request-Key"), keyfunc.Form("key")), " in the header X-Request-Key,"},
		"form":     {keyfunc.Form("key<b>"), " in the form field key<b>,"},
		"wrapped": {func(*http.Request) (string, error) {
			return "", fmt.Errorf("%s: %w", secret, keyfunc.MissingError{In: "member", Name: "/id"})
		}, " in the member /id,"},
		"unnamed": {func(*http.Request) (string, error) { return "", fmt.Errorf("%s: %w", secret, keyfunc.ErrMissing) }, " key,"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), test.key, payOnce(), middleware.WithRequired())
			a := s.send(noKey)
			s.want(a, http.StatusBadRequest, middleware.MissingKey)
			if got := a.detail(t); !strings.Contains(got, test.want) || strings.Contains(a.body, secret) {
				t.Errorf("detail %q, want one with %q", got, test.want)
			}
		})
	}
}

// detail returns the detail of a problem.
func (a answer) detail(t *testing.T) string {
	t.Helper()
	var p middleware.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Errorf("%v in %s", err, a.body)
	}
	return p.Detail
}

// conformance: 35
func TestTheRawKeyGoesNowhere(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, middleware.FromContext(r.Context()).Key())
		})
		a := s.send(key(`"`+secret+`"`), user("ann-the-user"))
		e := s.want(a, http.StatusOK, middleware.Executed)
		if a.body != e.Key || e.Key == "" {
			t.Errorf("Execution.Key %q, Event.Key %q, want the same", a.body, e.Key)
		}
		for _, k := range b.Keys(t) {
			value, _ := b.Raw(t, k)
			for _, raw := range []string{secret, "ann-the-user"} {
				if strings.Contains(k+value+fmt.Sprintf("%+v", e), raw) {
					t.Errorf("%q is in %q, %q or %+v", raw, k, value, e)
				}
			}
		}
	})
}

// conformance: 36
func TestProblemAsHTML(t *testing.T) {
	t.Parallel()
	const asHTML, asJSON = "text/html; charset=utf-8", "application/problem+json"
	s := serve(t, redistest.Mini(t), payOnce(), middleware.WithRequired())
	for accept, want := range map[string]string{
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": asHTML,
		"text/html": asHTML,
		"application/json;q=0.5, text/html;q=0.6": asHTML,
		"text/*":                         asHTML,
		"TEXT/HTML ; Q=1":                asHTML,
		"":                               asJSON,
		"*/*":                            asJSON,
		"application/json":               asJSON,
		"application/json, text/html":    asJSON,
		"text/html;q=0":                  asJSON,
		"text/html;q=0, */*":             asJSON,
		"text/html;q=0.1, */*;q=0.5":     asJSON,
		"text/html;q=none":               asJSON,
		"text/html;q=0.5, application/*": asJSON,
	} {
		a := s.send(noKey, header("Accept", accept))
		if got := a.header.Get("Content-Type"); a.status != http.StatusBadRequest || got != want {
			t.Errorf("Accept %q: %d, %s, want 400, %s", accept, a.status, got, want)
		}
		if want == asHTML && !strings.Contains(a.body, "<h1>This form cannot be sent</h1>") {
			t.Errorf("Accept %q: %s", accept, a.body)
		}
	}
}

func TestWithProblem(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), payOnce(), middleware.WithRequired(),
		middleware.WithProblem(func(w http.ResponseWriter, _ *http.Request, p middleware.Problem) {
			w.WriteHeader(p.Status)
			_, _ = io.WriteString(w, "ours: "+p.Type)
		}))
	a := s.send(noKey)
	s.want(a, http.StatusBadRequest, middleware.MissingKey)
	if a.body != "ours: urn:onceguard:problem:key-missing" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%+v", a)
	}
}

// A refusal has its Event even if the function of WithProblem panics.
func TestEventOfARefusalThatPanics(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	s := serve(t, b, payOnce(), middleware.WithRequired(),
		middleware.WithProblem(func(http.ResponseWriter, *http.Request, middleware.Problem) { panic(http.ErrAbortHandler) }))
	if _, err := s.try(s.request(noKey, noRetry)); err == nil {
		t.Error("the client got a response")
	}
	if e := s.event(); e.Outcome != middleware.MissingKey || e.Status != http.StatusBadRequest {
		t.Errorf("%+v, want missing-key", e)
	}
	s.wantRuns(0)
}
