// Package lock holds leases on Redis keys. A lease is a lock that ends by itself: if its holder dies, the key is free again
// when the lease has run out.
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
// [Locker.Claim] and [Lease.Settle] are what an idempotent operation is built from. One key holds the whole life of a
// request: it is absent, then it holds a claim, then the value that the operation left behind.
//
// # Words
//
//   - A claim is what a key holds while somebody has it: a random token, a note for others, an expiry.
//   - A lease is our side of a claim: it renews the claim, and ends when the claim is released, settled or lost.
//   - A value is what Settle puts in the claim's place, for as long as the caller asks.
//   - A hold keeps a claim after its lease has ended, so that nobody else begins the operation.
//   - A fence is a number that only grows from claim to claim.
//   - A command is one command to Redis; a batch is several that travel together.
//   - A waiter is a caller that waits for a key which somebody else has.
//
// # What each rule is for
//
// Every rule is there because the simpler way fails:
//
//   - SET with NX and PX sets the key and its expiry in one command. A process that dies between two commands would leave
//     a key that never goes away.
//   - The key holds a random token, so that a late holder does not free its successor's claim.
//   - A Lua script compares the whole token and acts. Nothing happens between the two.
//   - A lease is renewed at a third of its length as long as its holder works. If that fails, [Lease.Context] is done
//     before the server lets the key go.
//   - SET has GET too: one round trip takes the key or returns what it holds. If that is our own claim, our first try
//     arrived and its reply was lost.
//   - The script that releases or settles publishes a message that wakes waiters; they also look by themselves, in case
//     the message was missed. A waiter marks the claim, so that nothing is published where nobody waits. All waiters of a
//     key on one Locker share one subscription and one look: the death of a holder causes no stampede.
//   - [WithReplicas], or a [Quorum] of independent masters, survives a failover that loses the key.
//   - [WithFencing] is for a holder that was paused: no lease can promise that its holder knows of its end.
//   - Commands of callers that come at the same time travel together, so that many cost little more than one. Each caller
//     keeps its own deadline, and each command its own reply.
//   - go-redis never sends a command twice on its own: a lost reply turns no granted lock into a held one, and no release
//     into a loss.
//
// # What a lease promises, and what it does not
//
// At most one lease on a key is valid at a time, if the server keeps what it acknowledged and its clock runs within one
// percent of ours. A lease is valid until [Lease.Until]. That is monotonic time, counted from before the command was sent,
// less one percent of the length and two milliseconds: our wall clock does not matter. Redis expires keys by its own
// clock; a step of that clock ends a lease early or late.
//
// The server may break its half: a failover to a replica that had not seen the claim, a restart without persistence, an
// eviction, FLUSHALL, an operator. The holder then learns it from its next renewal, within a third of the length if Redis
// answers. A process that is paused believes what it knew until it wakes: check [Lease.Until] or the context right before
// an effect that must not happen twice.
//
// # Fast clients
//
// A *redis.Client with ContextTimeoutEnabled is the fastest. The Locker trusts it, its hooks and its Dialer to return when
// a context's deadline is over. So a Claim, TryAcquire, Settle or Release that finds few others in flight is sent inline,
// by the goroutine that called it. A cancellation ends such a call only when Redis has answered, or when the time for one
// operation is over.
//
// Other calls are sent by a worker, which the caller can abandon:
//
//   - the first one, and all with [WithReplicas];
//   - those with a note or a value of about 4 KiB and more;
//   - all on a client on which go-redis does not honor every deadline: with a ReadTimeout or WriteTimeout of -2, a Limiter,
//     a CredentialsProvider or a StreamingCredentialsProvider.
//
// A Dialer that leaves the TLS handshake to the first write breaks the trust, and so may go-redis's relaxed timeouts while
// a server announces maintenance.
//
// # What is checked
//
// The tests walk every interleaving of two processes that claim one key twice each, with a crash, a lost reply, a command
// that arrives after its sender gave up on it, and the end of leases at any moment. In all of them there are never two
// valid leases; nobody has an effect once a value is there; a Settle that was confirmed is what every later claim reads;
// and without a crash no claim is left but one whose command had to be given up, which ends with its lease. Release,
// renewal, Hold and Settle never touch another's claim, nor any value, and what was completed is not begun again while its
// value is there: these hold through a failover and a flush, too. With Hold there is at most one effect, even if a process
// dies or acts after a pause. Taking out any one of the rules above gives a counterexample.
//
// The model also shows what is open. Without Hold, a lease that ends between the effect and its Settle lets a rival have
// the effect again, and a process that is paused acts on a lease that is over. A flush, an eviction or a failover to a
// replica that is behind breaks mutual exclusion and may lose a confirmed value; a failover may also bring back a claim
// that nobody works under, for one lease, or for as long as it is held. Not modelled: WithReplicas, Quorum, an old master
// that still takes writes, clocks that drift by more than one percent, a handler that released although it had its effect,
// and the end of a hold's time.
//
// # Servers
//
// Redis 7.0 or newer answers SET with both NX and GET. An older server (6.0 to 6.2) refuses that, and gets a script with
// the same answer instead, which takes one more round trip. Ask redis.HasErrorPrefix for the kind of an error there, for
// example "OOM": it stands in the middle of what such a server sends. Look-ups never go to replicas. The tests have also been run on
// Redis 8.0 and Valkey 8.1.
//
// Valkey has SET with IFEQ (8.1) and DELIFEQ (9.0), Redis 8.4 has SET with IFEQ and DELEX: compare-and-set and
// compare-and-delete as native commands. They compare whole values, and here a claim changes while it stands (a hold, the
// mark of a waiter); nor does IFEQ write where there is nothing, as Settle must, or tell Release what it has met. So the
// scripts stay.
package lock
