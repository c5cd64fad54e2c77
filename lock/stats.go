package lock

// Stats is what a Locker counts. See [Locker.Stats].
type Stats struct {
	Pending        int    // values that could not be stored yet, and are tried again in the background
	PendingBytes   int    // of these, at most 64 MiB
	SettledLate    uint64 // values that were stored in the background, or did not have to be any more
	SettlesGivenUp uint64 // values that never were: see Lease.Settle
}

// Stats returns what the Locker has counted since it was made. It may be called concurrently, and asks nobody.
func (l *Locker) Stats() Stats {
	b := l.core.backlog.Stats()
	return Stats{Pending: b.Pending, PendingBytes: b.Bytes, SettledLate: b.Stored, SettlesGivenUp: b.GivenUp}
}
