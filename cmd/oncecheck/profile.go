package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// A profile is what an API specifies about Idempotency-Key where it differs from the draft.
type profile struct {
	statuses check.Statuses
	skip     []string // checks of what the API specifies otherwise
	must     []string // checks of what it demands and the draft does not
}

// opaque are the checks of a key that is a structured field. To these APIs it is any string.
var opaque = []string{"key/quoted", "key/escaped", "key/spelling"}

// profiles follow the Agentic Commerce Protocol of 2026-04-17 (rfc.agentic_checkout, section 6), the Universal Commerce Protocol
// of 2026-08 (checkout REST binding, and Replay Protection), and Stripe's API v1.
var profiles = map[string]profile{
	"acp": {
		statuses: check.Statuses{Missing: []int{400}, Invalid: []int{400}, Reused: []int{422}, InFlight: []int{409}},
		// The body alone is compared, as JSON. The key is repeated in each response, and a refusal is a flat object.
		skip: append([]string{"mismatch/query", "errors/problem", "errors/key-not-shown"}, opaque...),
		must: []string{"key/missing", "key/missing-runs", "mismatch/status", "mismatch/whitespace", "inflight/retry-after"},
	},
	"ucp": {
		statuses: check.Statuses{Missing: []int{400}, Invalid: []int{400}, Reused: []int{409}, InFlight: []int{409}},
		// The raw body is compared, and a key is optional.
		skip: append([]string{"key/missing-runs", "mismatch/query", "mismatch/whitespace", "errors/problem", "errors/says-retry"}, opaque...),
		must: []string{"mismatch/status"},
	},
	"stripe": {
		statuses: check.Statuses{Missing: []int{400}, Invalid: []int{400}, Reused: []int{400}, InFlight: []int{409}},
		skip:     append([]string{"key/missing-runs", "mismatch/whitespace", "errors/problem", "errors/key-not-shown"}, opaque...),
		must:     []string{"key/bare", "key/length-255", "mismatch/status", "replay/marked"},
	},
}

// profileFlag sets the statuses and the form of the key, which a -status or -key behind it may change, and the checks.
func (o *options) profileFlag(name string) error {
	p, ok := profiles[name]
	if !ok {
		return fmt.Errorf("%q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
	}
	o.profile, o.Statuses, o.KeyFormat = p, p.statuses, "{{key}}"
	return nil
}
