package report

import "slices"

// CauseIDs returns the patterns of all causes.
func CauseIDs() (ids []string) {
	for _, c := range causes {
		ids = slices.Concat(ids, c.shows, c.and, c.explains)
	}
	return ids
}

// Matches is matches.
func (e Entry) Matches(pattern string) bool { return e.matches(pattern) }
