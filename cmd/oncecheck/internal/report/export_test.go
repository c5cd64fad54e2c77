package report

import "strings"

// CauseIDs returns the ids in the table of causes.
func CauseIDs() (ids []string) {
	for _, c := range causes {
		ids = append(append(ids, c.lead), strings.Fields(c.explains)...)
	}
	return ids
}
