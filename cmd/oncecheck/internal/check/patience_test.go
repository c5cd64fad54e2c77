package check_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// A server that refuses every repetition is waited for once, and that is no breach of a MUST. fault: each check waits for as long as
// -patience says, ten minutes in all.
func TestEveryRepetitionRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t, "refuses every repetition")
	results := askShop(t, s, "once/answer-lost once/sent-twice inflight/then-replay", func(c *check.Config) { c.Patience = 6 * time.Second })
	wantVerdicts(t, results, []string{"inflight/then-replay"}, nil)
	if r := results["inflight/then-replay"]; r.Check.Level != check.Should { // the draft's section 2.6
		t.Errorf("level %s", r.Check.Level)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	long := 0
	for _, r := range s.records {
		if r.repeated > 7 { // more than two seconds allow
			long++
		}
	}
	if long > 1 {
		t.Errorf("%d keys were repeated for the whole of -patience, want one", long)
	}
}

// A query that shows nothing is named, and those beside it are asked. fault: a typing error in -fail is not mentioned, and one in
// -slow hides the other.
func TestQueryThatShowsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, "a crash locks the key")
	results := askShop(t, s, "errors/failed-answered errors/failed-once once/client-leaves crash/at-most-once crash/answered", func(c *check.Config) {
		c.Fail, c.Slow = []string{"nothing", "fail"}, []string{"fail=nothing", "slow"}
	})
	wantVerdicts(t, results, nil, []string{"errors/failed-answered", "errors/failed-once", "once/client-leaves", "crash/at-most-once", "crash/answered"})
	for id, r := range results {
		if !strings.Contains(r.Sentence, `nothing"`) || strings.Contains(r.Sentence, `"slow"`) {
			t.Errorf("%s: %s", id, r.Sentence)
		}
	}
	failed := askShop(t, newShop(t, "a crash locks the key"), "errors/failed-answered", func(c *check.Config) { c.Fail = []string{"nothing", "panic"} })
	wantVerdicts(t, failed, []string{"errors/failed-answered"}, nil)

	broken := askShop(t, newShop(t, "no lock"), "once/client-leaves", func(c *check.Config) { c.Slow = []string{"fail", "slow"} })
	wantVerdicts(t, broken, []string{"once/client-leaves"}, nil)
}

// The lines that show a failure repeat the first request until its key is at rest. fault: they say 201, and get 409.
func TestWaitIsShown(t *testing.T) {
	t.Parallel()
	results := askShop(t, newShop(t, "locked 409"), "mismatch/body", nothing)
	wantVerdicts(t, results, []string{"mismatch/body"}, nil)
	if shown := results["mismatch/body"].Shown; len(shown) != 3 || shown[1].Request.Waited < 50*time.Millisecond {
		t.Errorf("%d exchanges", len(shown))
	}
}
