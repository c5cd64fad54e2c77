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
//   - Who waits is woken by a message of the script that releases or settles, and looks by itself in case that was
//     missed. A claim is marked when somebody waits for its end, so that nothing is published where nobody does. All
//     who wait for a key on one Locker share one subscription and one look: the end of a dead holder makes no herd.
//   - A failover that loses the key is for [WithReplicas], or for a [Quorum] of independent masters.
//   - A holder that was paused is for [WithFencing]: no lease can promise that it knows of its end.
//   - Commands of callers that come at the same time travel together, so that many of them cost little more than one.
//     Each caller keeps its own deadline, and each command its own answer.
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
// an eviction, FLUSHALL, an operator. The holder then learns it from its next renewal, within a third of the length if
// Redis answers.
// And a process that is paused holds on to what it believes until it wakes: check [Lease.Until] or the context right
// before an effect that must not happen twice.
//
// # What is checked
//
// model_test.go walks every interleaving of two processes that claim one key twice each, with a crash, a lost reply, a
// command that arrives after its sender gave up on it, and the end of leases at any moment. Under all of these there
// are never two valid leases; nobody has an effect once a value is there; a Settle that was confirmed is what every
// later claim reads; and without a crash no claim is left but one whose command had to be given up, which ends with its
// lease. Release, renewal, Hold and Settle never touch another's claim, nor any value, and what was completed is not
// begun again while its value is there: these hold through a failover and a flush, too. With Hold there is at most one
// effect, also if a process dies or acts after a pause. Taking out any one of the rules above gives a counterexample.
//
// What the model shows to be open, by counterexample: without Hold, a lease that ends between the effect and its Settle
// lets a rival have the effect again, and a process that is paused acts on a lease that is over. A flush, an eviction
// or a failover to a replica that is behind breaks mutual exclusion and may lose a confirmed value; a failover may also
// bring back a claim that nobody works under, for one lease, or for as long as it is held. Not modelled: WithReplicas,
// Quorum, an old master that still takes writes, clocks that drift by more than one percent, a handler that released
// although it had its effect, and the end of a hold's time.
//
// # Servers
//
// Redis 7.0 or newer answers SET with both NX and GET. An older server (6.0 to 6.2) refuses it, and gets a script with
// the same answer instead. Look-ups never go to replicas.
//
// Valkey has SET with IFEQ (8.1) and DELIFEQ (9.0), Redis 8.4 has SET with IFEQ and DELEX: compare-and-set and
// compare-and-delete as native commands. They compare whole values, and here a claim changes while it stands (a hold, a
// mark that somebody waits); nor does IFEQ write where there is nothing, as Settle must, or tell a Release what it has
// met. Neither server is tested. So the scripts stay.
package lock
