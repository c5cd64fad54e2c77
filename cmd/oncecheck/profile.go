package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// A profile is what an API specifies about Idempotency-Key where it differs from the draft.
type profile struct {
	name   string
	reused int // the status for a reused key
	// How a key is written, see check.Config.KeyFormat.
	key  string
	skip []string // checks of what the API specifies otherwise
	// Checks of what it demands and the draft does not.
	must []string
}

// profiles follow the Agentic Commerce Protocol of 2026-04-17 (rfc.agentic_checkout, section 6), the Universal Commerce Protocol
// of 2026-08 (checkout REST binding, and Replay Protection), and Stripe's API v1. To these a key is any string. The first is
// what holds without -profile.
var profiles = []profile{
	{name: "", reused: 422},
	// The body alone is compared, as JSON. The key is repeated in each response, and a refusal is a flat object.
	{"acp", 422, opaqueKey,
		strings.Fields("mismatch/query"),
		strings.Fields(`key/echoed key/missing key/missing-runs mismatch/status mismatch/whitespace inflight/retry-after`)},
	// The raw body is compared, and a key is optional.
	{"ucp", 409, opaqueKey,
		strings.Fields("key/missing-runs mismatch/query mismatch/whitespace"),
		strings.Fields("mismatch/status")},
	{"stripe", 400, opaqueKey,
		strings.Fields("key/missing-runs mismatch/whitespace"),
		strings.Fields("key/bare key/length-255 mismatch/status replay/marked")},
}

const opaqueKey = "{{key}}"

// structured are the checks of a key that is a structured field.
var structured = []string{"key/quoted", "key/escaped", "key/spelling"}

// profileOf returns the profile that was chosen.
func (g *given) profileOf() profile {
	for _, p := range profiles {
		if p.name == g.profile {
			return p
		}
	}
	g.failIf(fmt.Errorf("-profile: %q is none of acp, ucp, stripe", g.profile))
	return profiles[0]
}

// asks reports whether the check is asked under the profile.
func (p profile) asks(c check.Check) bool {
	return !slices.Contains(p.skip, c.ID) && (c.Profiles == nil || slices.Contains(c.Profiles, p.name))
}

// choose returns the checks that -only, -skip, -key and -profile leave, with the levels of -at-most-once and -profile.
func (o *options) choose() (chosen []check.Check, err error) {
	for _, pattern := range slices.Concat(o.only, o.skip) {
		if !slices.ContainsFunc(check.All(), func(c check.Check) bool { return c.Is(pattern) }) {
			return nil, fmt.Errorf("there is no check %q: -list has them all", pattern)
		}
	}
	isOpaque := o.KeyFormat != "" && !strings.Contains(o.KeyFormat, `"`)
	for _, c := range check.All() {
		isChosen := (len(o.only) == 0 || slices.ContainsFunc(o.only, c.Is)) && !slices.ContainsFunc(o.skip, c.Is)
		if !isChosen || !o.profile.asks(c) || isOpaque && slices.Contains(structured, c.ID) {
			continue
		}
		if c.ID == "crash/at-most-once" && o.atMostOnce || slices.Contains(o.profile.must, c.ID) {
			c.Level = check.Must
		}
		chosen = append(chosen, c)
	}
	if chosen == nil {
		return nil, errors.New("-only, -skip, -key and -profile leave no check: -list names those of a profile")
	}
	return chosen, nil
}
