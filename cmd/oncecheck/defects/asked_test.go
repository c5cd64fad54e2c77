package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// A wrapper is a handler around another.
type wrapper func(w http.ResponseWriter, r *http.Request, next http.Handler)

// asking is a server, with a handler around it, and how it is asked in another way than with everything.
type asking struct {
	name   string
	defect string // of the server
	spoil  fault  // or another defect
	wrap   wrapper
	drop   string // the flags that are left out
	add    string // flags, with white space between them
	only   string

	failed, unasked string // the checks; the others hold
	// The sentence of those that are not asked, or the curl lines of those that failed, has that.
	says string
}

// args are those with which it is asked.
func (a asking) args(s *site) []string {
	var args []string
	questions := s.questions()
	url := questions[len(questions)-1]
	for i := 0; i < len(questions)-1; i++ {
		hasValue := i+2 < len(questions) && !strings.HasPrefix(questions[i+1], "-")
		if !slices.Contains(strings.Fields(a.drop), questions[i]) {
			args = append(args, questions[i])
			if hasValue {
				args = append(args, questions[i+1])
			}
		}
		if hasValue {
			i++
		}
	}
	args = append(args, "-patience", "3s", "-only", strings.Join(strings.Fields(a.only), ","))
	return append(append(args, strings.Fields(a.add)...), url)
}

// verdicts starts the server and asks it.
func (a asking) verdicts(t *testing.T) []verdict {
	t.Helper()
	d, _ := find(a.defect) // or one that spoils nothing
	if a.spoil != nil {
		d.spoil = a.spoil
	}
	s := startDefect(t, d)
	args := a.args(s)
	if a.wrap != nil {
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(0, w, r) })
		outer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.wrap(w, r, next) }))
		t.Cleanup(outer.Close)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], s.listeners[0].URL, outer.URL)
		}
	}
	return ask(t, args...)
}

const (
	ofUser  = "scope/user scope/user-runs scope/user-in-flight "
	atOnce  = "inflight/answer inflight/once inflight/time inflight/then-replay scope/user-in-flight mismatch/in-flight "
	failing = "errors/failed-once errors/failed-answered errors/failed-not-success "
	twoKeys = "key/length-distinct key/value-case once/keys-differ "
)

var askings = []asking{
	// Without -effects the ids in the responses tell a second run.
	{name: "by ids", only: "key/* once/* load/*", drop: "-effects",
		unasked: "key/refused-not-run key/missing-not-run once/client-leaves once/answer-lost once/request-cut"},
	{name: "unprotected by ids", defect: "unprotected", drop: "-effects",
		only:   "once/repeat once/instances-repeat once/keys-differ",
		failed: "once/repeat once/instances-repeat"},
	// Where nothing tells a second run, no check that needs it passes.
	{name: "not seen", wrap: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(http.StatusNoContent)
	}, drop: "-effects", only: "once/* load/*", unasked: "*"},
	// What is missing is said also where it is not known in advance.
	{name: "a fixed body", drop: "-sample", add: `-d {"amount":1}`, only: "mismatch/body", unasked: "*",
		says: "-other-d"},
	// Without -slow, duplicates are sent at one instant.
	{name: "at once", drop: "-slow", only: atOnce},
	// What needs several requests at a time is not asked with one, and nothing waits for ever.
	{name: "one at a time", add: "-parallel 1", only: atOnce + "once/concurrent",
		unasked: "*", says: "-parallel"},
	// A query that shows nothing is named, and those beside it are asked. fault: one bad sample hides sixteen.
	{name: "a failing sample", add: "-sample fail=before", only: "replay/status once/samples",
		unasked: "once/samples", says: `"fail=before"`},
	{name: "a failure that is one beside it", defect: "panic-locks", add: "-fail none",
		only: "errors/failed-answered", failed: "*"},
	{name: "a slow one that is not", drop: "-slow", add: "-slow none -slow slow=1s",
		only:    "once/client-leaves crash/answered",
		unasked: "*", says: `-slow "none"`},
	// A sample that does nothing shows nothing. fault: no effect is told as a second one.
	{name: "a sample without effect", spoil: func(s *server) {
		s.pay = func(c *call) {
			if pay(c); c.URL.Query().Get("as") == "binary" {
				c.made = nil
			}
		}
	}, only: "once/samples", unasked: "*", says: `nothing happens with "as=binary"`},
	// A server that nobody starts again shows nothing. fault: "connection refused" passes for an answer that never comes.
	{name: "not restarted", drop: "-effects -also", wrap: dies, only: "crash/after-answer crash/answered load/shuffled",
		unasked: "*"},
	// An effect that nobody can count is no failure of the server.
	{name: "a list that is cut", only: "once/repeat load/shuffled", wrap: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		inner := httptest.NewRecorder()
		next.ServeHTTP(inner, r)
		text := inner.Body.String()
		if n := 0; r.URL.Path == "/effects" {
			_, _ = fmt.Sscan(text, &n)
			text = fmt.Sprint(min(n, 20))
		}
		w.WriteHeader(inner.Code)
		_, _ = io.WriteString(w, text)
	}, unasked: "load/shuffled", says: "page"},
	// A server that is too busy now and then is asked again: that is no fault.
	{name: "busy", wrap: busy(), only: "key/quoted key/bare key/missing-runs once/repeat once/concurrent once/answer-lost " +
		"scope/user-runs load/shuffled"},
	// Without -effects a service that takes no order number twice is not asked what needs ids.
	{name: "order numbers", wrap: orders(), drop: "-effects", only: "once/repeat once/keys-differ replay/body",
		unasked: "once/*", says: "one body under two keys"},
	// A second user who gets no order of their own, whatever the key, is not refused for the key.
	{name: "order numbers of all users", wrap: orders(), only: ofUser, unasked: "scope/user-runs scope/user-in-flight"},
	// A service that makes one order of equal ones runs no second one, whatever the key. fault: it is told to drop orders.
	{name: "equal orders are one", spoil: func(s *server) {
		var first sync.Map // by body
		s.pay = func(c *call) {
			pay(c)
			if known, ok := first.LoadOrStore(string(c.body), c.reply); ok {
				c.reply, c.made = known.(*response), nil
			}
		}
	}, only: "once/repeat " + twoKeys + ofUser, drop: "-also", unasked: twoKeys + ofUser},
	// A second user who can do nothing shows nothing. fault: a refusal of the user, or a login page, passes for a response.
	{name: "refused", wrap: bobGets(func(w http.ResponseWriter) { w.WriteHeader(403) }), only: ofUser, unasked: "*"},
	{name: "a login page", wrap: bobGets(func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, "<form>", time.Now().UnixNano())
	}), only: ofUser, unasked: "*"},
	// -effects may count the first user's orders alone: the second user's response shows that they can do something.
	{name: "effects of the first user", spoil: func(s *server) {
		s.pay = func(c *call) {
			if pay(c); c.user() == "Bearer bob" {
				c.made = nil
			}
		}
	}, only: ofUser},
	// What is refused until a key has come to rest is asked after that, and shown so. fault: that passes for a right refusal.
	{name: "locked with 423", spoil: locked(423), only: "scope/user mismatch/path", failed: "*"},
	{name: "locked with 500", spoil: locked(500), only: "scope/user mismatch/path", unasked: "*"},
	{name: "locked with 409", spoil: locked(409), only: "mismatch/body", failed: "*", says: "for wait in"},
	// fault: a key of 255 characters, with the two quotes of a server that knows none, is asked as one of 257.
	{name: "the quotes are characters", spoil: refuses(func(field string) bool { return len(field) > 255 }),
		only: "key/length-255 key/length-distinct key/quoted"},
	// fault: a parameter that a framework adds is told as another type.
	{name: "another charset", spoil: replays(func(a *response) {
		a.Header.Set("Content-Type", a.Header.Get("Content-Type")+";charset=utf-8")
	}), only: "replay/content-type replay/headers", failed: "replay/headers"},
}

// TestAsked asks servers in other ways than with everything: no verdict is false, and what is not asked says why.
func TestAsked(t *testing.T) {
	t.Parallel()
	for _, need := range strings.Fields("-effects -slow -H2 -also -restart -store-down -fail -sample") {
		a := asking{name: "without " + need, drop: need, says: need}
		if need == "-store-down" {
			a.drop += " -store-up"
		}
		for i, way := range check.Ways[1:] {
			for _, c := range check.All() {
				if strings.HasPrefix(way, need) && c.Needs&(2<<i) != 0 {
					a.only += c.ID + " "
				}
			}
		}
		a.unasked = "*"
		askings = append(askings, a)
	}
	for _, a := range askings {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			is := func(list string, v verdict) bool {
				return slices.ContainsFunc(strings.Fields(list), func(pattern string) bool { return check.Check{ID: v.ID}.Is(pattern) })
			}
			for _, v := range a.verdicts(t) {
				want := "held"
				if is(a.failed, v) {
					want = "failed"
				} else if is(a.unasked, v) {
					want = "not asked"
				}
				text := v.Sentence + strings.Join(v.Curl, "\n")
				if v.Verdict != want || want != "held" && !strings.Contains(text, a.says) {
					t.Errorf("%s: %s (%s), want %s that says %q", v.ID, v.Verdict, text, want, a.says)
				}
			}
		})
	}
}

// busy answers every third POST by 429.
func busy() wrapper {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost && n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// orders refuses a body that comes with a second key, or from a second user.
func orders() wrapper {
	var keys sync.Map // by body
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		key := r.Header.Get(keyHeader) + " " + r.Header.Get("Authorization")
		if known, _ := keys.LoadOrStore(string(body), key); known != key && len(body) > 0 {
			w.WriteHeader(http.StatusConflict)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// bobGets gives the second user another answer.
func bobGets(answer func(http.ResponseWriter)) wrapper {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("Authorization") == "Bearer bob" {
			answer(w)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// locked takes any request with the key for the first, and refuses it twice before it replays.
func locked(status int) fault {
	return func(s *server) {
		var mu sync.Mutex
		asked := map[string]int{}
		s.scopeOf = func(c *call) string { return c.key }
		s.printOf = func(*call) string { return "" }
		s.answer = func(c *call) *response {
			mu.Lock()
			defer mu.Unlock()
			if asked[c.key]++; asked[c.key] < 3 {
				return problem(status, "locked")
			}
			return answer(c)
		}
	}
}

// dies closes its listener in place of a restart.
func dies(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.URL.Path == "/restart" {
		go r.Context().Value(http.ServerContextKey).(*http.Server).Close()
		return
	}
	next.ServeHTTP(w, r)
}

// A server that cannot be asked is told so, with what it answered.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	s, other := startDefect(t, defect{}), startDefect(t, defect{})
	payments := func(s *site) string { return s.url(0, "/payments") }
	for _, c := range []struct {
		want string
		args []string
	}{
		{"must go up by one", []string{"-effects", "echo 7", payments(s)}},
		{"neither a number", []string{"-effects", "echo many", payments(s)}},
		{"exit status 1", []string{"-effects", "false", payments(s)}},
		// fault: an instance that nobody reaches passes for one that runs nothing twice.
		{"must be a success", []string{"-effects", s.url(0, "/effects"), "-also", "http://127.0.0.1:1/", payments(s)}},
		{"another database?", []string{"-effects", s.url(0, "/effects"), "-also", payments(other), payments(s)}},
	} {
		args := append([]string{"-H", "Authorization: Bearer ann", "-d", `{"amount":{{n}}}`}, c.args...)
		if _, stderr := runOncecheck(args...); !strings.Contains(stderr, c.want) {
			t.Errorf("%v, want %q", stderr, c.want)
		}
	}
}
