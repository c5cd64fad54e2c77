package check

import (
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// Runs returns how many runs the responses come from, by the ids that the first three tell.
func Runs(responses []*ask.Response) int {
	var exchanges []ask.Exchange
	for _, r := range responses {
		exchanges = append(exchanges, ask.Exchange{Response: r})
	}
	return findIDs(exchanges[:3]).runs(exchanges)
}

// ParseCount parses what -effects prints.
func ParseCount(output string) (int, error) { return parseCount([]byte(output)) }

// Hide hides the values of the headers in the text.
func Hide(first, second []ask.Field, text string) string {
	return newSecrets(first, second).Replace(text)
}

// Spellings returns the body in each spelling, or nil where it has none.
func Spellings(body []byte) (space, number, null []byte) {
	return spaced(body), otherNumber(body), withNull(body)
}
