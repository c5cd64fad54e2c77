package lock

// Stats has the counts of a Locker. See [Locker.Stats].
type Stats struct {
	Pending        int    // values that could not be stored yet, and are retried in the background
	PendingBytes   int    // their total size in bytes, at most 64 MiB
	SettledLate    uint64 // values that were stored in the background, or no longer had to be
	SettlesGivenUp uint64 // values that were never stored: see Lease.Settle
}

// Stats returns the counts since the Locker was made. It may be called concurrently, and sends nothing.
func (l *Locker) Stats() Stats {
	b := l.common.backlog.Stats()
	return Stats{Pending: b.Pending, PendingBytes: b.Bytes, SettledLate: b.Stored, SettlesGivenUp: b.GivenUp}
}
