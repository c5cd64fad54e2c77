package check_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// Every row says all that a developer who has never read the draft needs.
func TestRowsAreComplete(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`^(key|once|replay|mismatch|scope|inflight|errors|store|crash|cors|cache|load)/[a-z0-9-]+$`)
	seen := map[string]bool{}
	for _, c := range check.All() {
		if !id.MatchString(c.ID) || seen[c.ID] {
			t.Errorf("id %q", c.ID)
		}
		seen[c.ID] = true
		if !slices.Contains([]check.Level{check.Must, check.Should, check.May, check.Advice}, c.Level) {
			t.Errorf("%s: level %q", c.ID, c.Level)
		}
		for what, text := range map[string]string{"title": c.Title, "customer": c.Customer} {
			if text == "" || strings.HasSuffix(text, ".") || strings.Contains(text, "\n") {
				t.Errorf("%s: %s %q, want a sentence without a full stop", c.ID, what, text)
			}
		}
		if !strings.HasSuffix(c.Asserts, ".") && !strings.HasSuffix(c.Asserts, ".)") {
			t.Errorf("%s: asserts %q, want sentences", c.ID, c.Asserts)
		}
		for _, need := range c.Needs {
			if !strings.HasPrefix(string(need), "give -") {
				t.Errorf("%s: nothing says how to give %s", c.ID, need)
			}
		}
	}
	if len(seen) < 90 {
		t.Errorf("%d checks", len(seen))
	}
}

// A MUST or SHOULD that no text demands is one that costs a customer something.
func TestTextsOfWhatIsDemanded(t *testing.T) {
	t.Parallel()
	for _, c := range check.All() {
		for _, text := range c.Texts {
			if !regexp.MustCompile(`^(draft-ietf-httpapi-idempotency-key-header-07|RFC 9\d\d\d|WHATWG Fetch), section [0-9.]+ \(.+\)$|^Stripe, |^Agentic Commerce Protocol 2026-04-17, RFC Agentic Checkout, section 6|^Universal Commerce Protocol 2026-08, `).MatchString(string(text)) {
				t.Errorf("%s: text %q names no section", c.ID, text)
			}
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	if c, ok := check.Find("once/repeat"); !ok || c.Level != check.Must {
		t.Errorf("once/repeat: %+v, %v", c, ok)
	}
	for _, alias := range []string{"once/concurrent-10", "key/empty"} { // of earlier versions
		if c, ok := check.Find(alias); !ok || c.ID == alias || !c.Is(alias) {
			t.Errorf("%s: %s, %v", alias, c.ID, ok)
		}
	}
	if _, ok := check.Find("once/never"); ok {
		t.Error("a check that does not exist was found")
	}
}
