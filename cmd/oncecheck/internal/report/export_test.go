package report

import "strings"

// CauseIDs returns the ids in the tables of causes.
func CauseIDs() (ids []string) {
	for _, c := range allCauses() {
		ids = append(append(ids, c.lead), strings.Fields(c.explains)...)
	}
	return ids
}
