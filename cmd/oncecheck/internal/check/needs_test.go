package check_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/hook"
)

// Without -slow, duplicates are sent at one instant.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	const ids = "inflight scope/user-in-flight mismatch/in-flight mismatch/in-flight-status"
	withoutSlow := func(c *check.Config) { c.Slow = nil }
	right := askShop(t, newShop(t, ""), ids, withoutSlow)
	wantVerdicts(t, right, nil, nil)
	for id, r := range right {
		if !strings.Contains(r.Sentence, "-slow") {
			t.Errorf("%s does not say how it was asked: %q", id, r.Sentence)
		}
	}
	broken := []string{"inflight/answer", "inflight/once", "mismatch/in-flight"}
	wantVerdicts(t, askShop(t, newShop(t, "no lock"), strings.Join(broken, " "), withoutSlow), broken, nil)
	one := askShop(t, newShop(t, ""), ids, func(c *check.Config) { c.Slow, c.Client = nil, ask.NewClient(20*time.Second, 1, 3000, false) })
	for id, r := range one {
		if r.Verdict != check.NotAsked || !strings.Contains(r.Sentence, "-parallel") {
			t.Errorf("%s, one at a time: %s (%s)", id, r.Verdict, r.Sentence)
		}
	}
}

// No check passes without what it needs: it says what is missing.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for need, remove := range map[check.Need]func(*check.Config){
		check.Counted:  func(c *check.Config) { c.EffectsURL = nil },
		check.Slow:     func(c *check.Config) { c.Slow = nil },
		check.User2:    func(c *check.Config) { c.User2 = nil },
		check.Also:     func(c *check.Config) { c.Also = nil },
		check.Restart:  func(c *check.Config) { c.Restart = "" },
		check.Store:    func(c *check.Config) { c.StoreDown = "" },
		check.Fail:     func(c *check.Config) { c.Fail = nil },
		check.OtherURL: func(c *check.Config) { c.OtherURL = nil },
	} {
		var ids []string
		for _, c := range check.All() {
			if slices.Contains(c.Needs, need) {
				ids = append(ids, c.ID)
			}
		}
		results := askShop(t, newShop(t, ""), strings.Join(ids, " "), remove)
		for _, id := range ids {
			if r := results[id]; r.Verdict != check.NotAsked || r.Sentence != string(need) {
				t.Errorf("%s without %s: %s (%s)", id, need, r.Verdict, r.Sentence)
			}
		}
		if len(ids) == 0 {
			t.Errorf("nothing needs %s", need)
		}
	}
}

// Where nothing tells a second run, no check that needs it passes.
func TestNotSeen(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	s.main.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for id, r := range askShop(t, s, "", func(c *check.Config) { c.EffectsURL = nil }) {
		if slices.Contains(r.Check.Needs, check.Effects) && r.Verdict != check.NotAsked {
			t.Errorf("%s: %s (%s)", id, r.Verdict, r.Sentence)
		}
	}
}

// What is missing is said also where it is not known in advance.
func TestNotAsked(t *testing.T) {
	t.Parallel()
	results := askShop(t, newShop(t, ""), "", func(c *check.Config) {
		*c = check.Config{Client: c.Client, URL: c.URL, Method: c.Method, KeyHeader: c.KeyHeader, Statuses: c.Statuses, Patience: c.Patience,
			Body: `{"amount":1}`}
	})
	for id, want := range map[string]string{
		"mismatch/body": "-other-d", "replay/body-binary": "-sample", "replay/redirect": "-sample", "replay/no-cookie": "-sample",
	} {
		if r := results[id]; r.Verdict != check.NotAsked || !strings.Contains(r.Sentence, want) {
			t.Errorf("%s: %s (%s), want one that names %s", id, r.Verdict, r.Sentence, want)
		}
	}
}

// A sample that fails is named by one check, and the others are asked on what is left. fault: one bad sample hides sixteen.
func TestFailingSample(t *testing.T) {
	t.Parallel()
	results := askShop(t, newShop(t, ""), "replay/status replay/body replay/body-binary once/samples", func(c *check.Config) {
		c.Samples = []string{"sample=empty", "fail", "sample=binary"}
	})
	wantVerdicts(t, results, nil, []string{"once/samples"})
	if r := results["once/samples"]; !strings.Contains(r.Sentence, `"fail"`) {
		t.Errorf("%s", r.Sentence)
	}
}

// A sample that does nothing shows nothing. fault: no effect is told as a second one.
func TestSampleWithoutEffect(t *testing.T) {
	t.Parallel()
	results := askShop(t, newShop(t, "samples do nothing"), "once/samples", func(c *check.Config) { c.Samples = []string{"sample=binary"} })
	wantVerdicts(t, results, nil, []string{"once/samples"})
	if r := results["once/samples"]; !strings.Contains(r.Sentence, `nothing happens with "sample=binary"`) {
		t.Errorf("%s", r.Sentence)
	}
}

// A server that nobody starts again shows nothing. fault: "connection refused" passes for an answer that never comes.
func TestNotRestarted(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	stopped := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		_ = s.main.Listener.Close()
		s.main.CloseClientConnections()
	}))
	t.Cleanup(stopped.Close)
	ids := []string{"crash/answered", "crash/after-answer", "load/shuffled"}
	results := askShop(t, s, strings.Join(ids, " "), func(c *check.Config) {
		c.EffectsURL, c.Also, c.Restart, c.Patience = nil, nil, hook.Command(checktest.Command(http.MethodGet, stopped.URL)), 2*time.Second
	})
	wantVerdicts(t, results, nil, ids)
}

// A service that takes no order number twice is asked again and again, by the ids of its responses, too. fault: the numbers of an
// earlier run come again; {{uuid}} in the body leaves no id to look at.
func TestOrderNumbers(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"order":{{n}}}`, `{"order":"{{uuid}}"}`} {
		s, orders := newShop(t, ""), newOrders()
		s.main.Config.Handler = orders.guard(s)
		for range 2 {
			wantVerdicts(t, askShop(t, s, "once/repeat once/keys-differ replay/body", func(c *check.Config) { c.Body, c.EffectsURL = body, nil }), nil, []string{"once/keys-differ"})
		}
		broken := newShop(t, "no protection")
		broken.main.Config.Handler = newOrders().guard(broken)
		wantVerdicts(t, askShop(t, broken, "once/repeat", func(c *check.Config) { c.Body, c.EffectsURL = body, nil }), []string{"once/repeat"}, nil)
	}
}

// A fixed order number ends the run at once, and says why. fault: each check repeats it for a minute.
func TestFixedOrderNumber(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	s.main.Config.Handler = newOrders().guard(s)
	cfg := check.Config{Client: ask.NewClient(20*time.Second, 1, 100, false), URL: s.url(t, "/payments"), Method: "POST", Patience: time.Minute,
		KeyHeader: "Idempotency-Key", Body: `{"order":7}`, Statuses: check.Draft07()}
	if err := check.NewSession(cfg).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "{{n}} and {{uuid}} differ") {
		t.Errorf("%v", err)
	}
}

// orders knows which key and user each order number came with.
type orders struct {
	mu   sync.Mutex
	keys map[string]string
}

func newOrders() *orders { return &orders{keys: map[string]string{}} }

// guard refuses an order number that comes with a second key, or from a second user.
func (o *orders) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		o.mu.Lock()
		key := r.Header.Get("Idempotency-Key") + " " + r.Header.Get("Authorization")
		known, isKnown := o.keys[string(body)]
		if !isKnown && json.Valid(body) {
			o.keys[string(body)] = key
		}
		o.mu.Unlock()
		if isKnown && known != key {
			w.WriteHeader(http.StatusConflict)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// What needs several requests at a time is not asked with one, and nothing waits for ever.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	ids := []string{"inflight/answer", "mismatch/in-flight", "scope/user-in-flight", "once/concurrent", "once/sent-twice-at-once"}
	results := askShop(t, newShop(t, ""), strings.Join(ids, " "), func(c *check.Config) { c.Client = ask.NewClient(20*time.Second, 1, 3000, false) })
	wantVerdicts(t, results, nil, ids)
	for id, r := range results {
		if !strings.Contains(r.Sentence, "-parallel") {
			t.Errorf("%s: %s", id, r.Sentence)
		}
	}
}
