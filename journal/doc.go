// Package journal defines what a database beside Redis must do, so that an operation does not take effect twice even if
// Redis loses its keys. Package sqljournal does it in PostgreSQL, MySQL and SQLite. Those who use it do not need this package,
// except for the errors.
//
// A door is what protects operations: package middleware, for requests by HTTP. It takes a [Journal], which its option
// WithJournal passes on. The journal knows nothing of the door. What it stores is a key, which is hashed, and a record:
// the response as bytes that only the door can read.
//
// # What a Journal must do
//
// A journal works in one of two modes. An intent journal stores a row before the operation runs, so that a crash leaves
// a trace. A transactional journal stores nothing before the operation runs: its row is part of the operation's own
// transaction.
//
// A row has one key, and each run has a token that no other run has. A row has an outcome or has none:
//
//   - There is at most one row under a key, whichever runs and processes try to store one at the same time.
//   - Only the run whose token is in a row without an outcome completes or frees it.
//   - An outcome stays as it is until its time is over. Then its row counts as absent, and another run may replace it.
//   - A row without an outcome stays until its run, a sweep or an operator ends it. It is never removed because of its
//     age.
//   - What a method has returned is durable: a crash of the database does not undo it.
//
// The times are the database's, because the clocks of those that use it differ.
//
// # Transactions
//
// An operation whose effect is in the journal's database stores its effect and its record in one transaction. A journal
// offers that as a function of its own, such as sqljournal's InTx, which calls [Transact]. Transact finds the run by
// the context, where its door has put it.
//
// # How this package may grow
//
// From version 1.0 on, Journal gets no further methods, so that every implementation goes on to
// compile. What a later version asks of a journal is an interface of its own, which doors look for by a type assertion
// and can do without. [Run], [Entry] and [Commit] may get fields, whose zero value means what holds today: write their
// fields with names. A state and an error keep their meaning.
package journal
