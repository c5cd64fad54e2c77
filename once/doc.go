// Package once lets a function take effect once for each key, whichever process calls it: a message that a queue
// delivers twice, a job that is retried, a tool that an agent calls again after a timeout.
//
//	guard := once.New(lock.New(client, "payments"))
//
//	key := once.Key{Operation: "charge", Scope: order.Customer, ID: message.ID, Input: order}
//	receipt, replayed, err := once.Do(ctx, guard, key, func(ctx context.Context) (Receipt, error) {
//		return charge(ctx, order)
//	})
//
// The first call with a key runs the function, and what it returns is stored in Redis. A later call gets that value,
// with replayed true, or a [*Refused] if there is none. [Do] describes each step. For HTTP handlers use package
// middleware.
//
// # What the function returns
//
// A value is stored for [WithRetention]'s time. An error is returned to the caller. What it does to the key depends on
// what the function knows:
//
//	return v, once.NothingHappened(err)   the key is freed: the next call runs
//	return v, once.Final(err)             the error is stored: the next call gets a *StoredError
//	return v, once.Unknown(err)           it may have happened: the key is left as after a crash
//	return v, err                         as NothingHappened; as Final with WithAtMostOnce or an intent journal
//
// A panic and runtime.Goexit leave the key as Unknown does, and go on.
//
// # What to decide
//
//   - What the key is: see [Key]. A retry must have the same one.
//   - What happens after a crash. By default the outcome of the run is unknown, and the next call runs when the lease
//     has run out, after 10 s. With [WithAtMostOnce] it does not run. With [WithJournal] your database decides.
//   - What a call gets while another one runs: [ErrInFlight], or the result after a wait ([WithWait]).
//   - What happens while Redis does not answer. By default [ErrUnavailable], and nothing runs. [WithFailOpen] runs the
//     function unprotected.
//
// # Consumers of queues
//
// Use the default or a transactional journal for a message that is delivered until it succeeds, not [WithAtMostOnce] or an
// intent journal. These store an error that the function does not mark: a timeout of a database would be the result of that
// message for a day.
//
// Acknowledge the message if err is nil, a [*StoredError] or [ErrNotStored]. If err is a [*Refused] that is Retryable,
// have the message delivered again after RetryAfter. Any other Refused needs a person. After any other error have the
// message delivered again. That includes an error of an inner Do that the function returns: it matches none of these. With
// WithAtMostOnce or an intent journal a Retryable Refused leaves the key as Unknown does, and another error is stored,
// unless the function marks it.
//
// # Values
//
// A value is stored as JSON ([WithCodec]), in 1 MiB at most. The caller whose function ran gets the value itself, and
// later callers get what is read back. A number in an interface, such as any or map[string]any, is then a float64:
// 9007199254740993 is replayed as 9007199254740992. So let T be a struct, json.Number or json.RawMessage. Fields that
// JSON leaves out are empty. A value that is longer, or that cannot be encoded, is returned to its caller and not stored:
// later calls get [ErrNotStored]. If T cannot take a stored value, the call gets [ErrUnreadable], and nothing runs. So change
// T as you would change a message that is already in a queue.
//
// # Words
//
// Claim, lease, hold and fence mean what they mean in package lock; run, duplicate, record, tombstone, fingerprint and
// retention what they mean in package middleware. A run is one call of the function.
package once
