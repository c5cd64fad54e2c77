package once

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
)

// Option changes a default of [New].
type Option func(*options)

type options struct {
	policy         run.Policy
	endsWithCaller bool                         // WithCancel
	observe        func(context.Context, Event) // nil without WithObserver
	marshal        func(any) ([]byte, error)
	unmarshal      func([]byte, any) error
}

// WithAtMostOnce keeps a function whose outcome is unknown from being called again, for [WithRetention]'s time. The
// outcome is unknown if the function panicked or returned [Unknown], its process died, or its result could not be
// stored. So it is if the function returns the [Refused] of an inner Do without a mark, and the Refused is Retryable: it may
// have had an effect before. By default the next call runs when the lease has run out.
//
// The next call gets [ErrInFlight] until the lease has run out, and then [ErrOutcomeUnknown] for WithRetention's time.
// In that time a person or another system has to find out what happened, because after it a call runs
// ([Guard.Resolve]).
//
// Another error without a mark is stored, because a function that fails seldom knows that nothing has happened. Return
// [NothingHappened] if it does. A consumer of a queue should use the default or a transactional journal instead: see the
// package comment.
//
// New panics when it is combined with [WithFailOpen], or with a WithRetention above lock.MaxHold.
func WithAtMostOnce() Option { return func(o *options) { o.policy.AtMostOnce = true } }

// WithRetention sets how long a result is stored, counted from the return of the function, in whole milliseconds. The
// default is 24 h. It must be longer than a call may be repeated: a queue's retention, for example. [Execution.Retain]
// sets it for one result. It panics below a millisecond.
func WithRetention(d time.Duration) Option {
	option.Check(d >= time.Millisecond, "once.WithRetention: %v is below a millisecond", d)
	return func(o *options) { o.policy.Retention = d }
}

// WithWait lets a duplicate of a running call wait up to d for its result. The default is 0: the duplicate gets
// [ErrInFlight] at once, as it does when d has passed, or when its ctx is done.
//
// A waiter never calls its function. If the other call ends without a result, the waiter gets [ErrFailed], and a later
// call may run. With [WithAtMostOnce] or an intent journal it gets [ErrOutcomeUnknown] if the outcome is unknown, and
// no later call runs. An error of Redis does not end a wait. The waiters for a key in one process share their look-ups
// in Redis, and a message wakes them. Once only an intent journal has the run, each waiter polls the journal.
//
// most is one number: how many calls may wait at the same time, over all keys of one Guard. The default is 1,000. At most a
// tenth of them, and at least one, may wait for one key, so that the calls for it do not take the others' places. One more
// gets [ErrInFlight] at once, and its Event has an error.
//
// WithWait panics when d is negative, when there are two numbers, and when the number is below 1.
func WithWait(d time.Duration, most ...int) Option {
	option.Check(d >= 0, "once.WithWait: %v is negative", d)
	limit := run.MaxWaiters("once.WithWait", most)
	return func(o *options) { o.policy.Wait, o.policy.MaxWaiters = d, limit }
}

// WithMaxDuration limits how long a function may run. The default is 60 s. After d its context is done, with the cause
// context.DeadlineExceeded, and its lease is no longer renewed: once the lease has run out too, another call may run. A
// result that comes later still counts, as long as no other call has the key. It panics when d is not positive.
func WithMaxDuration(d time.Duration) Option {
	option.Check(d > 0, "once.WithMaxDuration: %v is not positive", d)
	return func(o *options) { o.policy.MaxDuration = d }
}

// WithCancel ends the context of a function also when the caller's ctx is cancelled, with the same cause. By default it
// does not: the function belongs to all who call with its key, and one of them must not end it. Use it if the caller is
// the run: a job whose worker shuts down. A call whose ctx is done already gets [ErrUnavailable] and runs nothing.
//
// An error that the function then returns frees the key, as any other error does, or is stored with [WithAtMostOnce]
// and with an intent journal. Return [Unknown] if the effect may have happened.
func WithCancel() Option { return func(o *options) { o.endsWithCaller = true } }

// WithFailOpen calls the function unprotected when Redis does not answer, in the caller's own context and without a
// limit. The default is [ErrUnavailable], and nothing runs. With it, duplicates during an outage run twice. Each call
// still waits for Redis first, for lock.WithOpTimeout at most. A function does not run if its key is known to hold
// something, if the deadline of ctx has passed, or after lock.Locker.Close. New panics when it is combined with
// [WithAtMostOnce] or [WithJournal].
func WithFailOpen() Option { return func(o *options) { o.policy.FailOpen = true } }

// WithJournal lets a database decide, in addition to Redis, what has happened: see [journal.Journal], and package
// sqljournal. Redis may then lose data, fail over or be unreachable, and no call is refused because of it. The default
// is no journal. WithJournal panics if j is nil. New panics if it is combined with [WithFailOpen], and if the journal
// has another namespace than the Locker.
//
// Before the function runs, the journal is asked whether it may. When it has returned, its result is stored in the
// journal first and then in Redis. If the journal cannot store it, Do returns the result, the [Event] has lock.ErrPending,
// and storing goes on in the background for up to an hour. Until then a duplicate gets [ErrInFlight]. The loss of the lease
// does not end a run.
//
// With an intent journal a function whose outcome is unknown does not run again before a sweep or an operator has ended
// its row, however long that takes. An error without a mark is stored as with [WithAtMostOnce].
//
// With a transactional journal call the journal's own Do, such as sqljournal.Do: it commits the effect and the result in
// one transaction. After a plain [Do] only Redis protects the effect, and the Event of each run has an error. A
// transaction of sqljournal's InTx or Around does not begin inside of a plain Do: its error names the
// function to call.
//
// An intent journal also works without Redis, with a Locker of [lock.None]: see middleware.WithJournal.
func WithJournal(j journal.Journal) Option {
	option.Check(j != nil, "once.WithJournal: the journal is nil")
	return func(o *options) { o.policy.Journal = j }
}

// WithEncryption encrypts what is stored with AES-256-GCM: values, texts of errors, and the fingerprints of Inputs. By
// default nothing is encrypted. The first key encrypts, and every key decrypts. A key is 32 random bytes from a secret
// store. Keys are copied and never logged. It panics when there is no key, or when a key has another length.
//
// It works as middleware.WithEncryption does, whose comment says how to change the key and what stays visible. A record
// that no key decrypts, or that is not encrypted, is [ErrUnreadable], and nothing runs.
func WithEncryption(keys ...[]byte) Option {
	ring := record.NewKeyring("once.WithEncryption", keys)
	return func(o *options) { o.policy.Codec.Keys = ring }
}

// WithPlaintextReads also reads records that are not encrypted, while [WithEncryption] is being switched on. By default
// they are [ErrUnreadable]. Remove it when the longest retention has passed since the last instance without encryption
// was stopped. New panics when it is given without WithEncryption.
func WithPlaintextReads() Option { return func(o *options) { o.policy.Codec.PlaintextReads = true } }

// WithCompression compresses results of min bytes and more, as they are stored, with DEFLATE at its fastest level. By
// default nothing is compressed. Every instance reads both forms, whatever its own options. Below 1 KiB compression is
// seldom worth it. The warning of middleware.WithCompression about secrets applies. It panics when min is negative.
func WithCompression(min int) Option {
	option.Check(min >= 0, "once.WithCompression: %d is negative", min)
	return func(o *options) { o.policy.Codec.Compress, o.policy.Codec.CompressMin = true, min }
}

// WithCodec sets how values are encoded. The default is json.Marshal and json.Unmarshal. marshal gets the value that
// the function has returned, and unmarshal a pointer to a new T, as those two do. unmarshal must not keep or change the
// bytes. Every instance that shares keys needs the same codec: a value that unmarshal refuses is [ErrUnreadable]. Of an
// error only its type goes into Do's error and the [Event], because its text may quote the value. Both are called
// concurrently. Key.Input is always compared as JSON. WithCodec panics when one of them is nil.
func WithCodec(marshal func(any) ([]byte, error), unmarshal func([]byte, any) error) Option {
	option.Check(marshal != nil && unmarshal != nil, "once.WithCodec: a function is nil")
	return func(o *options) { o.marshal, o.unmarshal = marshal, unmarshal }
}

// WithObserver calls f once for every call of [Do], before it returns, in its goroutine and with its ctx, which may be
// done. By default nothing is called. Use it to log and to measure. f is called concurrently. If the option is given
// more than once, each f is called, in that order. WithObserver panics when f is nil.
func WithObserver(f func(context.Context, Event)) Option {
	option.Check(f != nil, "once.WithObserver: f is nil")
	return func(o *options) { o.observe = option.Both(o.observe, f) }
}
