package report

// CauseIDs returns the ids in the table of causes.
func CauseIDs() (ids []string) {
	for _, c := range causes {
		ids = append(append(append(ids, c.lead), c.and...), c.explains...)
	}
	return ids
}
