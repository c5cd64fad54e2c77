package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// A profile is what an API specifies about Idempotency-Key where it differs from the draft.
type profile struct {
	name     string
	statuses check.Statuses
	key      string   // how a key is written, see check.Config.KeyFormat
	skip     []string // checks of what the API specifies otherwise
	must     []string // checks of what it demands and the draft does not
}

// draft07 is what holds without -profile.
var draft07 = profile{statuses: check.Draft07()}

// To these APIs a key is any string.
const opaqueKey = "{{key}}"

// structured are the checks of a key that is a structured field.
var structured = []string{"key/quoted", "key/escaped", "key/spelling"}

// profiles follow the Agentic Commerce Protocol of 2026-04-17 (rfc.agentic_checkout, section 6), the Universal Commerce Protocol
// of 2026-08 (checkout REST binding, and Replay Protection), and Stripe's API v1.
var profiles = map[string]profile{
	"acp": {
		name:     "acp",
		statuses: check.Statuses{Missing: []int{400}, Invalid: []int{400}, Reused: []int{422}, InFlight: []int{409}},
		key:      opaqueKey,
		// The body alone is compared, as JSON. The key is repeated in each response, and a refusal is a flat object.
		skip: []string{"mismatch/query", "errors/problem", "errors/key-not-shown"},
		must: []string{"key/echoed", "key/missing", "key/missing-runs", "mismatch/status", "mismatch/whitespace", "inflight/retry-after"},
	},
	"ucp": {
		name:     "ucp",
		statuses: check.Statuses{Missing: []int{400}, Invalid: []int{400}, Reused: []int{409}, InFlight: []int{409}},
		key:      opaqueKey,
		// The raw body is compared, and a key is optional.
		skip: []string{"key/missing-runs", "mismatch/query", "mismatch/whitespace", "errors/problem", "errors/says-retry"},
		must: []string{"mismatch/status"},
	},
	"stripe": {
		name:     "stripe",
		statuses: check.Statuses{Missing: []int{400}, Invalid: []int{400}, Reused: []int{400}, InFlight: []int{409}},
		key:      opaqueKey,
		skip:     []string{"key/missing-runs", "mismatch/whitespace", "errors/problem", "errors/key-not-shown"},
		must:     []string{"key/bare", "key/length-255", "mismatch/status", "replay/marked"},
	},
}

// profileFlag chooses the profile.
func (o *options) profileFlag(name string) error {
	p, ok := profiles[name]
	if !ok {
		return fmt.Errorf("%q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
	}
	o.profile = p
	return nil
}

// asks reports whether the check is asked under the profile.
func (p profile) asks(c check.Check) bool {
	return !slices.Contains(p.skip, c.ID) && (c.Profiles == nil || slices.Contains(c.Profiles, p.name))
}

// isOpaque reports whether a key is any string here: by the profile, or by a -key without quotes.
func (o *options) isOpaque() bool {
	return o.profile.key == opaqueKey || o.KeyFormat != "" && !strings.Contains(o.KeyFormat, `"`)
}

// apply sets what no other flag has: wherever they stand on the command line, -status and -key win over -profile.
func (p profile) apply(cfg *check.Config) {
	given, rules := cfg.Statuses, p.statuses
	cfg.Statuses = check.Statuses{
		Missing: either(given.Missing, rules.Missing), Invalid: either(given.Invalid, rules.Invalid),
		Reused: either(given.Reused, rules.Reused), InFlight: either(given.InFlight, rules.InFlight),
	}
	cfg.KeyFormat = cmp.Or(cfg.KeyFormat, p.key)
}

// either returns the given statuses or, if there are none, those of the rules.
func either(given, rules []int) []int {
	if len(given) > 0 {
		return given
	}
	return rules
}
