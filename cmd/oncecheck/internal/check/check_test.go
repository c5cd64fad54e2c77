package check_test

import (
	"compress/gzip"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/hook"
)

// The tests wait more than they work.
func TestMain(m *testing.M) {
	checktest.Main()
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// askShop asks a shop with everything that a check may need, and returns the verdicts.
func askShop(t *testing.T, s *shop, ids string, change func(*check.Config)) map[string]check.Result {
	t.Helper()
	client := ask.NewClient(20*time.Second, 50, 3000, false)
	t.Cleanup(client.Close)
	control := func(what string) hook.Command {
		return hook.Command(checktest.Command(http.MethodGet, s.main.URL+"/control/"+what))
	}
	alsoURL := *s.url(t, "/payments")
	alsoURL.Host = strings.TrimPrefix(s.also.URL, "http://")
	cfg := check.Config{
		Client: client, URL: s.url(t, "/payments"), Also: &alsoURL, OtherURL: s.url(t, "/refunds"), EffectsURL: s.url(t, "/effects"),
		Method: "POST", KeyHeader: "Idempotency-Key", Body: `{"amount":{{n}}}`,
		Header: []ask.Field{{Name: "Authorization", Value: "ann"}}, User2: []ask.Field{{Name: "Authorization", Value: "bob"}},
		Slow: []string{"slow"}, Fail: []string{"fail"}, Samples: []string{"sample=binary", "sample=empty", "sample=large"},
		Restart: control("restart"), StoreDown: control("down"), StoreUp: control("up"),
		Statuses: check.Draft07(), Patience: 3 * time.Second,
	}
	change(&cfg)
	session := check.NewSession(cfg)
	if err := session.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var checks []check.Check
	for _, c := range check.All() {
		group, _, _ := strings.Cut(c.ID, "/")
		if c.Profiles == nil && (ids == "" || slices.Contains(strings.Fields(ids), group)) || slices.Contains(strings.Fields(ids), c.ID) {
			checks = append(checks, c)
		}
	}
	results := map[string]check.Result{}
	session.Run(t.Context(), checks, func(check.Check) {}, func(r check.Result) { results[r.Check.ID] = r })
	return results
}

func nothing(*check.Config) {}

// wantVerdicts checks which of the results failed, and that no other was left out.
func wantVerdicts(t *testing.T, results map[string]check.Result, failed, unasked []string) {
	t.Helper()
	for id, r := range results {
		want := check.Held
		if slices.Contains(failed, id) {
			want = check.Failed
		} else if slices.Contains(unasked, id) {
			want = check.NotAsked
		}
		if r.Verdict != want {
			t.Errorf("%s: %s (%s), want %s", id, r.Verdict, r.Sentence, want)
		}
		if r.Verdict == check.Failed && (len(r.Shown) == 0 || r.Want == "" || r.Got == "") {
			t.Errorf("%s failed, and shows nothing: %+v", id, r)
		}
	}
}

// Whatever can be asked holds for a server that is right.
func TestRightServer(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	s.main.Config.Handler = compressed(s)
	wantVerdicts(t, askShop(t, s, "", nothing), []string{"mismatch/whitespace"}, []string{"replay/no-cookie"})
}

// Without -effects the ids in the responses tell a second run.
func TestRightServerByIDs(t *testing.T) {
	t.Parallel()
	results := askShop(t, newShop(t, ""), "key once load", func(c *check.Config) { c.EffectsURL = nil })
	wantVerdicts(t, results, nil, []string{"key/refused-not-run", "key/missing-not-run", "once/client-leaves", "once/request-cut"})
}

// Each fault fails the checks that are about it, and no other of the groups that are asked. The servers of defects have
// many more.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault  fault
		groups string
		change func(*check.Config)
		failed string
	}{
		{"no lock", "once/repeat once/concurrent once/sent-twice-at-once inflight/once mismatch/in-flight", nothing,
			"once/concurrent once/sent-twice-at-once inflight/once mismatch/in-flight"},
		{"no protection", "once/repeat once/instances-repeat once/chunked once/answer-lost once/sent-twice once/keys-differ", func(c *check.Config) { c.EffectsURL = nil },
			"once/repeat once/instances-repeat once/chunked once/answer-lost once/sent-twice"},
		{"malformed keys are no keys", "key/never-unprotected key/refused-not-run key/spelling key/quoted key/missing key/missing-runs", nothing,
			"key/never-unprotected key/spelling key/missing-runs"},
		{"empty replay", "replay/body replay/status replay/body-binary replay/body-large replay/location", nothing, "replay/body replay/body-binary replay/body-large"},
		{"lost header", "replay/location replay/headers replay/redirect replay/status", nothing, "replay/location replay/headers replay/redirect"},
		// fault: a parameter that a framework adds is told as another type.
		{"another charset", "replay/content-type replay/headers", nothing, "replay/headers"},
		{"another type", "replay/content-type replay/headers", nothing, "replay/content-type"},
		{"stored date", "replay/date", nothing, "replay/date"},
		{"no quotes", "key/quoted key/bare once/repeat mismatch/body", nothing, "key/quoted"},
		// fault: a key of 255 characters, with the two quotes of a server that knows none, is asked as one of 257.
		{"the quotes are characters", "key/length-255 key/length-distinct key/quoted", nothing, ""},
		// fault: another request that waits for the first gets the first's response, and there is one effect.
		{"compares only what has ended", "mismatch/body mismatch/in-flight inflight/answer", nothing, "mismatch/in-flight"},
		// fault: one operation for equal bodies passes for a service to which equal orders are one.
		{"the body is the key", "once/repeat once/keys-differ key/length-distinct key/value-case", nothing, "once/keys-differ key/length-distinct key/value-case"},
		{"a crash locks the key", "errors/failed-answered errors/failed-once", func(c *check.Config) { c.Fail = []string{"panic"} }, "errors/failed-answered"},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			t.Parallel()
			unasked := map[fault][]string{"malformed keys are no keys": {"key/missing", "key/refused-not-run"}}
			wantVerdicts(t, askShop(t, newShop(t, c.fault), c.groups, c.change), strings.Fields(c.failed), unasked[c.fault])
		})
	}
}

// A server that cannot be asked is told so, with what it answered.
func TestStart(t *testing.T) {
	t.Parallel()
	s, other, untrusted := newShop(t, ""), newShop(t, ""), httptest.NewTLSServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	silent := newShop(t, "")
	silent.main.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	t.Cleanup(untrusted.Close)
	also := func(of *url.URL) func(*check.Config) {
		return func(c *check.Config) { c.Also, c.EffectsURL = of, s.url(t, "/effects") }
	}
	tls, err := url.Parse(untrusted.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want   string
		change func(*check.Config)
	}{
		{"404 Not Found", func(c *check.Config) { c.URL = s.url(t, "/nowhere") }},
		{"must go up by one", func(c *check.Config) { c.EffectsURL, c.Effects = nil, "echo 7" }},
		{"neither a number", func(c *check.Config) { c.EffectsURL, c.Effects = nil, "echo many" }},
		// fault: an instance that nobody reaches passes for one that runs nothing twice.
		{"(-also) must be a success, as the first instance's is: no answer", also(silent.url(t, "/payments"))},
		{"(-also) must be a success, as the first instance's is: 404", also(s.url(t, "/nowhere"))},
		{"add -insecure", also(tls)},
		{"with the same database?", also(other.url(t, "/payments"))},
		{"exit status 1", func(c *check.Config) { c.EffectsURL, c.Effects = nil, "false" }},
	} {
		cfg := check.Config{Client: ask.NewClient(20*time.Second, 1, 100, false), URL: s.url(t, "/payments"), Method: "POST",
			KeyHeader: "Idempotency-Key", Body: `{"amount":{{n}}}`, Statuses: check.Draft07(), Patience: time.Second}
		c.change(&cfg)
		if err := check.NewSession(cfg).Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// An effect that nobody can count is no failure of the server.
func TestCountCutToAPage(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	results := askShop(t, s, "once/repeat once/concurrent load/shuffled", func(c *check.Config) {
		c.EffectsURL = nil
		c.Effects = hook.Command(`n=$(` + checktest.Command(http.MethodGet, s.main.URL+"/effects") + `); [ $n -lt 20 ] && echo $n || echo 20`)
	})
	if r := results["once/repeat"]; r.Verdict != check.Held {
		t.Errorf("%s (%s)", r.Verdict, r.Sentence)
	}
	if r := results["load/shuffled"]; r.Verdict != check.NotAsked || !strings.Contains(r.Sentence, "page") {
		t.Errorf("%s (%s)", r.Verdict, r.Sentence)
	}
}

// What several checks look at is asked once, also if it could not be.
func TestAskedOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	results := askShop(t, s, "errors/failed-once errors/failed-answered errors/failed-not-success", func(c *check.Config) { c.Fail = []string{"nothing"} })
	wantVerdicts(t, results, nil, []string{"errors/failed-once", "errors/failed-answered", "errors/failed-not-success"})
	if s.done != 6 { // five at the start
		t.Errorf("%d operations, want 6", s.done)
	}
}

// A server that is too busy now and then is asked again: that is no fault.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	var n atomic.Int64
	s.main.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && n.Add(1)%3 == 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		s.ServeHTTP(w, r)
	})
	ids := "key/quoted key/bare key/name-case key/missing-runs once/repeat once/concurrent once/answer-lost once/chunked once/expect-continue scope/user-runs load/shuffled errors/validation"
	wantVerdicts(t, askShop(t, s, ids, nothing), nil, nil)
}

// A run that has spent its budget says so, and ends.
func TestBudget(t *testing.T) {
	t.Parallel()
	results := askShop(t, newShop(t, ""), "once/concurrent load/shuffled", func(c *check.Config) {
		c.Client = ask.NewClient(20*time.Second, 50, 30, false)
	})
	for id, r := range results {
		if r.Verdict != check.NotAsked || !strings.Contains(r.Sentence, "budget") {
			t.Errorf("%s: %s (%s)", id, r.Verdict, r.Sentence)
		}
	}
}

// compressed is an outer handler that compresses for clients that accept gzip.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			next.ServeHTTP(w, r)
			return
		}
		inner := httptest.NewRecorder()
		next.ServeHTTP(inner, r)
		for name, values := range inner.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(inner.Code)
		zip := gzip.NewWriter(w)
		_, _ = zip.Write(inner.Body.Bytes())
		_ = zip.Close()
	})
}
