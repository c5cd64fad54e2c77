package check

import (
	"maps"
	"net/http"
	"slices"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// IDs returns the ids of the checks that have a function.
func IDs() []string { return slices.Sorted(maps.Keys(functions)) }

// Runs returns how many runs the responses come from, by the ids that the first three tell.
func Runs(responses []*ask.Response) int {
	var exchanges []ask.Exchange
	for _, r := range responses {
		exchanges = append(exchanges, ask.Exchange{Response: r})
	}
	return findIDs(responses[:3]).runs(exchanges)
}

// RetryAfter parses a Retry-After.
func RetryAfter(value string, h http.Header) (seconds int, ok bool) { return retryAfter(value, h) }
