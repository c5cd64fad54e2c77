package lock

// Stats holds the counts of a Locker: see [Locker.Stats]. Those with "now" rise and fall. The others only grow, from 0
// when the Locker is made.
type Stats struct {
	Leases int // valid now: granted, and neither settled, released, lost nor run out

	// Waiters are the calls of Acquire and Wait that are waiting now. Subscriptions are the keys that they are subscribed
	// to now: the waiters of one key share a subscription, which begins after their first poll.
	Waiters, Subscriptions int

	// Queued are commands that wait to be sent now, and InFlight those that were sent and have no reply now. Queued is
	// more than 0 only if more commands come than Redis takes. Batches and Commands were sent: their ratio is the mean
	// size of a batch. The commands of Check and of subscriptions are not counted, nor is the WAIT of WithReplicas.
	Queued, InFlight  int
	Batches, Commands uint64

	// Retries are tries after the first one of an operation, after an error that may pass. GivenUp are operations that
	// ended without a reply from Redis: they timed out (WithOpTimeout), their context was done, or all tries failed.
	Retries, GivenUp uint64

	// Renewals were confirmed. Lost are leases that ran out, or whose claim was removed or replaced, also by Resume,
	// although their holder still relied on them. Abandoned leases are not counted.
	Renewals, Lost uint64

	Pending        int    // values that could not be stored yet and are retried in the background now
	PendingBytes   int    // their total size in bytes now, at most 64 MiB
	SettledLate    uint64 // values that were stored in the background, or no longer had to be
	SettlesGivenUp uint64 // values that were never stored, or short ones instead: see Lease.Settle and Lease.SettleAppend

	// Releases are claims that no run needs, and that are released in the background now: for the first time, or again.
	// ReleasesGivenUp were released less often than planned, or never: see Locker.Claim. With a hold, their keys may be
	// Abandoned although nothing ran, or what ran has settled.
	Releases        int
	ReleasesGivenUp uint64
}

// Stats returns the counts. It may be called concurrently, and sends nothing. The counts are not all of one instant.
func (l *Locker) Stats() Stats {
	leases, backlog, sent := &l.granter.leases, l.granter.backlog.Stats(), l.store.Stats()
	releases, releasesGivenUp := l.store.ReleaseStats()
	return Stats{
		Leases: int(leases.Counts.Active.Load()), Waiters: l.waiters.number(), Subscriptions: l.waiters.hub.Subscriptions(),
		Queued: sent.Queued, InFlight: sent.InFlight, Batches: sent.Batches, Commands: sent.Commands,
		Retries: sent.Retries, GivenUp: sent.GivenUp,
		Renewals: leases.Counts.Renewals.Load(), Lost: leases.Counts.Lost.Load(),
		Pending: backlog.Pending, PendingBytes: backlog.Bytes, SettledLate: backlog.Stored, SettlesGivenUp: backlog.GivenUp,
		Releases: releases, ReleasesGivenUp: releasesGivenUp,
	}
}
