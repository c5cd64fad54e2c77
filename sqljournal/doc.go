// Package sqljournal keeps a durable record of runs in PostgreSQL, MySQL or SQLite, beside Redis. Redis remains the fast path.
// The database decides, so a request cannot take effect twice even if Redis loses its key.
//
// # Which mode
//
// [Transactional] is for handlers whose effect is in the same database. [Journal.InTx] runs the handler's transaction
// and commits the journal's row with it: both the effect and the record of the response exist, or neither does. A crash
// leaves nothing behind, and a failed transaction may simply be tried again.
//
// [Intent] is for handlers whose effect is elsewhere, such as at a payment provider. A row is committed before the
// handler runs, and completed afterwards. Nothing runs twice. A crash leaves the row unfinished, and [Journal.Sweep]
// hands it to your function that finds out what happened. Intent costs one more commit than Transactional, and a 5xx is
// stored as the response. InTx works in this mode too.
//
// Instead of using Intent, a handler may insert a task in its transaction. A worker then calls the provider, with
// middleware.Execution.Key as the idempotency key.
//
// # The table
//
// [Schema] returns the statements that create the table onceguard_journal and its indexes. They belong in your
// migrations. At the start of a program, [Journal.Check] reports whether the table exists and whether a commit is
// durable.
//
// A row is what the table stores under a key. It has the key as in Redis, which is a hash, the token of its run, and a
// state:
//
//	1 begun   stored before the handler ran, and not completed; the run may take until the time "until"
//	2 done    the response, until expires_at; a row that Sweep has completed may have none
//
// Transactional stores only rows that are done. [Journal.Expire] removes expired rows. Call it every few minutes, from
// one process or from all. All times are the database's.
//
// Several services may share the table. A key begins with the namespace of its service's Locker, and a [Journal] sees
// only the rows of its own namespace. Each service calls Expire and Sweep for itself.
//
// A look reads the row of a key, and changes nothing. An entry ([journal.Entry]) is what a row means to the run that asks or, from Look, to a caller without a run.
//
// # A handler
//
//	err := journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
//		payment, err := insertPayment(r.Context(), tx, order)
//		if err != nil {
//			return err
//		}
//		return writeJSON(w, http.StatusCreated, payment)
//	})
//	if err != nil {
//		http.Error(w, "payment failed", http.StatusInternalServerError) // not sent after ErrAnswered
//	}
//
// What the handler writes before or in InTx is the response that is stored. Code that owns its transaction, such as
// pgx, sqlc or an ORM, uses [Journal.Around] instead.
//
// # Lost replies
//
// When the reply to COMMIT is lost, a plain SELECT cannot tell whether the transaction was committed: the COMMIT may
// not have arrived yet. InTx and Around then open a second transaction and insert the same row in it. The INSERT waits
// until the first transaction has ended. They roll the second one back. They wait 3 s at most.
//
// # The databases
//
// The package uses only database/sql, and imports no driver. Every parameter in a PostgreSQL statement has a cast, so
// pgx's exec and simple_protocol modes work, as needed behind a transaction pooler. The options [MySQL] and [SQLite]
// select the other dialects. SQLite has one writer at a time: use it for a service that is one process. The tests run
// on all of them.
package sqljournal
