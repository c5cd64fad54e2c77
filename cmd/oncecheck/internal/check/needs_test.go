package check_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/plan"
)

// Without -slow, duplicates are sent at one instant.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	const ids = "inflight scope/user-in-flight mismatch/in-flight mismatch/in-flight-status"
	withoutSlow := func(c *check.Config) { c.Slow = "" }
	right := askShop(t, newShop(t, ""), ids, withoutSlow)
	wantVerdicts(t, right, nil, nil)
	for id, r := range right {
		if !strings.Contains(r.Sentence, "-slow") {
			t.Errorf("%s does not say how it was asked: %q", id, r.Sentence)
		}
	}
	broken := []string{"inflight/answer", "inflight/once", "mismatch/in-flight"}
	wantVerdicts(t, askShop(t, newShop(t, "no lock"), strings.Join(broken, " "), withoutSlow), broken, nil)
	one := askShop(t, newShop(t, ""), ids, func(c *check.Config) { c.Slow, c.Client = "", ask.NewClient(20*time.Second, 1, 3000, false) })
	for id, r := range one {
		if r.Verdict != check.NotAsked || !strings.Contains(r.Sentence, "-parallel") {
			t.Errorf("%s, one at a time: %s (%s)", id, r.Verdict, r.Sentence)
		}
	}
}

// No check passes without what it needs: it says what is missing.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for need, remove := range map[plan.Need]func(*check.Config){
		plan.Counted:  func(c *check.Config) { c.EffectsURL = nil },
		plan.Slow:     func(c *check.Config) { c.Slow = "" },
		plan.User2:    func(c *check.Config) { c.User2 = nil },
		plan.Also:     func(c *check.Config) { c.Also = nil },
		plan.Restart:  func(c *check.Config) { c.Restart = "" },
		plan.Store:    func(c *check.Config) { c.StoreDown = "" },
		plan.Fail:     func(c *check.Config) { c.Fail = "" },
		plan.OtherURL: func(c *check.Config) { c.OtherURL = nil },
	} {
		var ids []string
		for _, c := range plan.All() {
			if slices.Contains(c.Needs, need) {
				ids = append(ids, c.ID)
			}
		}
		results := askShop(t, newShop(t, ""), strings.Join(ids, " "), remove)
		for _, id := range ids {
			if r := results[id]; r.Verdict != check.NotAsked || r.Sentence != need.Explain() {
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
		if slices.Contains(r.Check.Needs, plan.Effects) && r.Verdict != check.NotAsked {
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

// A sample that fails is named, and no check passes on the others alone.
func TestFailingSample(t *testing.T) {
	t.Parallel()
	results := askShop(t, newShop(t, ""), "replay/status replay/body replay/body-binary", func(c *check.Config) {
		c.Samples = []string{"sample=empty", "fail", "sample=binary"}
	})
	for id, r := range results {
		if r.Verdict != check.NotAsked || !strings.Contains(r.Sentence, `"fail"`) {
			t.Errorf("%s: %s (%s)", id, r.Verdict, r.Sentence)
		}
	}
}

// What needs several requests at a time is not asked with one, and nothing waits for ever.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	ids := []string{"inflight/answer", "mismatch/in-flight", "scope/user-in-flight", "once/concurrent-2", "once/sent-twice-at-once"}
	results := askShop(t, newShop(t, ""), strings.Join(ids, " "), func(c *check.Config) { c.Client = ask.NewClient(20*time.Second, 1, 3000, false) })
	wantVerdicts(t, results, nil, ids)
	for id, r := range results {
		if !strings.Contains(r.Sentence, "-parallel") {
			t.Errorf("%s: %s", id, r.Sentence)
		}
	}
}
