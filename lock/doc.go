// Package lock holds leases on Redis keys. A lease is a lock that ends by itself: whoever holds it may die, and the
// key is free again once the lease has run out.
//
// [Locker.TryAcquire] and [Locker.Acquire] are an ordinary distributed lock. [Locker.Claim] and [Lease.Settle] are what
// an idempotent operation is built from: one key holds the whole life of a request. It is absent, then it holds a
// claim (a random token, a note, an expiry), then the value that the operation left behind, for as long as asked for.
//
// # What each rule is for
//
// Every rule is there because the simpler way fails:
//
//   - The key is set and given its expiry by one command, SET with NX and PX: a process that died between two commands
//     would leave a key that never goes away.
//   - The key holds a random token, so that a holder which comes late does not free what is now its successor's.
//   - Tokens are compared, whole, inside a Lua script that also acts: nothing happens between the look and the deed.
//   - A lease is renewed at a third of its length for as long as its holder works. When that fails, [Lease.Context] is
//     done before the server lets the key go.
//   - SET has GET too: one round trip takes the key or tells what it holds. When the answer is our own claim, then our
//     first try had arrived and its reply was lost.
//   - A command that was sent is never sent again by go-redis without our knowing: a reply that was lost turns no
//     granted lock into a held one, and no release into a loss.
//
// # What a lease promises, and what it does not
//
// At most one lease on a key is valid at a time, if the server keeps what it acknowledged and its clock runs at most
// one percent slower or faster than ours. A lease is valid until [Lease.Until], which is monotonic time counted from
// before the command was sent, less one percent of the length and two milliseconds: no wall clock of ours matters.
// Redis expires keys by its own; a step of that one ends a lease early or late.
//
// The server may break its half: a failover to a replica that had not seen the claim, a restart without persistence,
// an eviction, FLUSHALL, an operator. The holder then learns it from its next renewal, within a third of the length.
// And a process that is paused holds on to what it believes until it wakes: check [Lease.Until] or the context right
// before an effect that must not happen twice.
//
// Redis 7.0 or newer answers SET with both NX and GET. An older server (6.0 to 6.2) refuses it, and gets a script with
// the same answer instead.
package lock
