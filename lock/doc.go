// Package lock grants leases on Redis keys. A lease is a lock that ends by itself: if its holder dies, the key is free
// again when the lease has run out.
//
// [Locker.TryAcquire] and [Locker.Acquire] are an ordinary distributed lock:
//
//	lease, ok, err := locker.TryAcquire(ctx, "report")
//	if err != nil || !ok {
//		return err
//	}
//	defer lease.Release(ctx)
//	write(lease.Context()) // done when the lease is lost
//
// [Locker.Resume] takes such a lease over from another process.
//
// [Locker.Claim] and [Lease.Settle] are what idempotent work is built from. One key holds the whole life of a
// request: it is absent, then it holds a claim, then the value that the holder has stored.
//
// # Words
//
// What a key holds:
//
//   - A claim is what a key holds while somebody has it: a random token, a note for others, and an expiry.
//   - A value is what Settle replaces the claim with, for as long as the caller asks.
//   - A key is held ([Held]) while it holds another caller's claim, with or without a hold, and the claim's lease is
//     not known to have run out.
//   - A hold ([Locker.Claim]) is a part of a claim: the time for which the claim stays after its lease has ended, so
//     that no other caller begins the work. A claim is under a hold, never "held".
//   - A key is abandoned ([Abandoned]) when the lease of its claim has run out, and only the hold keeps the claim.
//   - A waiter sets a mark on a claim, so that the end of the claim publishes a message.
//   - A fence is a number that grows from claim to claim of a key.
//
// Who has it:
//
//   - The holder of a key is the caller whose claim the key holds.
//   - The owner of a lock is a text that names the holder to operators: see [NewOwnerContext].
//   - Work is what the holder does while it has the key.
//   - A lease is the holder's side of a claim: it renews the claim, and ends when the claim is released, settled or
//     lost.
//   - To abandon a lease is to stop its renewals, so that it runs out.
//   - A handle is one caller's share in a lease. A lease has more than one only after [NewContext].
//   - A waiter is a call of Acquire or Wait that waits for a key.
//   - A poll is one operation on a key for all its waiters. It takes a free key if one of them is a call of Acquire.
//     Otherwise it reads the key, and marks the claim that it finds there.
//
// How it gets to Redis:
//
//   - An operation is one act on a key, for example to claim or to settle it, with all its retries. [WithOpTimeout]
//     sets the time for one operation.
//   - A command is one command to Redis. A batch is several commands that are sent together.
//   - A value is pending while its Settle has failed and is retried in the background.
//
// # What each rule is for
//
// Each rule is there because a simpler way fails:
//
//   - SET with NX and PX sets the key and its expiry in one command. A process that dies between two commands would
//     leave a key that never expires.
//   - The key holds a random token, so that a late holder does not free its successor's claim.
//   - A Lua script, or a native command (see Servers), compares the whole token and acts. No other command comes
//     between the two.
//   - A lease is renewed at a third of its length while its holder works. If that fails, [Lease.Context] is done before
//     the server lets the key go.
//   - SET has GET too: one round trip takes the key or returns what it holds. If the key holds our own claim, an
//     earlier try arrived and its reply was lost.
//   - The script that releases or settles publishes a message that wakes waiters. They also poll, because a message may
//     be missed. A waiter marks the claim, so that nothing is published for a key without waiters. All waiters of a key
//     on one Locker share one subscription and one poll, so that the death of a holder causes no stampede.
//   - [WithReplicas], or package lock/quorum on independent masters, survives a failover that loses the key.
//   - [WithFencing] is for a holder that was paused: no lease can promise that its holder notices its end.
//   - Commands that come at the same time are sent together, so that many cost little more than one. Each caller keeps
//     its own deadline, and each command its own reply.
//   - go-redis never retries a command: after a lost reply, its retry would report a granted key as held, and a release
//     as a lost lease.
//
// # What a lease promises, and what it does not
//
// At most one lease on a key is valid at a time, if the server keeps what it has acknowledged, and its clock and ours
// differ in speed by less than one percent. A lease is valid until [Lease.Until]: for its length, less one percent and
// two milliseconds, counted from the start of the claim or renewal, before its first command is sent. That is monotonic
// time, so our wall clock does not matter. Redis expires keys by its own clock: a step of that clock ends a lease early
// or late.
//
// The server may lose a claim: by a failover to a replica that had not received it, a restart without persistence, an
// eviction, FLUSHALL, an operator. The holder then learns that from its next renewal, within a third of the length if
// Redis answers. A process that is paused learns nothing until it runs again: call [Lease.Err], or Err of the context,
// right before an effect that must not happen twice.
//
// # What is checked
//
// Tests force each fault that a rule above is for. Others play random histories: several clients, each behind a proxy that
// loses, delays and cuts what it sends. In all of them:
//
//   - what the clients were told is linearizable: there are never two valid leases, and a Settle that was confirmed is
//     what every later claim returns;
//   - one lease after the last call, no claim without a hold is left.
//
// Two more properties are true even through a failover and a flush. Release, renewal and Settle never change another
// process's claim or any value. What was completed is not begun again while its value is stored. With a hold there is
// at most one effect, even if a process dies or acts after a pause.
//
// This is not prevented:
//
//   - If a process dies while its claim under a hold is on its way, or before it has released that claim, the key is
//     abandoned although nothing ran.
//   - Without a hold, if a lease ends between the effect and its Settle, another caller may have the effect again. A
//     paused process may act on a lease that is over.
//   - A flush, an eviction or a failover to a replica that is behind breaks mutual exclusion, and may lose a confirmed
//     value.
//   - A failover, or a command that arrives more than ten minutes late, may bring back a claim that no holder renews, for
//     the length of a lease or of its hold.
//   - A holder that releases although it had its effect lets another caller have it again.
//
// # Operators
//
// [Locker.Inspect] returns what a stored key holds, without its note or value. [Locker.Forget] removes exactly
// what Inspect has returned, [Locker.SettleAbandoned] stores a value for a holder that died, and [Locker.Scan] finds
// keys. Command onceguard has them for the keys of package middleware.
//
// # Servers
//
// Redis 7.0 or newer answers SET with both NX and GET. An older server (6.0 to 6.2) refuses that, and then gets a
// script with the same result: one more round trip for each claim. To tell the kind of an error, for example "OOM", use
// redis.HasErrorPrefix: an older server sends it in the middle of a script's error. Nothing is read from replicas. The
// page docs/servers.md lists the servers on which the tests have passed.
//
// Newer servers compare and write in one native command: SET with IFEQ (Redis 8.4, Valkey 8.1), and DELEX (Redis 8.4)
// or DELIFEQ (Valkey 9.0). [Lease.Settle] and [Lease.Release] send it first once [Locker.Check] has found it. It
// compares the whole claim, and does nothing if a waiter has marked the claim or the key is absent: then the script
// follows. With [WithReplicas] only scripts are sent, and a Cluster has only SET.
package lock
