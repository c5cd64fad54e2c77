// Command onceguard is the command of the same name in the root module
// (https://pkg.go.dev/github.com/onceguard/onceguard/cmd/onceguard), with drivers for PostgreSQL, MySQL and SQLite: it also
// reads and settles the rows of a journal of package sqljournal. Use it for every service that has a journal.
//
//	onceguard inspect -redis URL -journal URL KEY
//	onceguard forget  -redis URL -journal URL -token TOKEN -reason TEXT [-even-if-live] KEY
//	onceguard resolve -redis URL -journal URL -token TOKEN -reason TEXT -nothing-happened KEY
//	onceguard resolve -redis URL -journal URL -token TOKEN -reason TEXT -status N [-header 'Name: value'] [-body-file FILE] KEY
//	onceguard resolve -redis URL -journal URL -token TOKEN -reason TEXT (-value FILE [-raw] | -failed TEXT) KEY
//	onceguard scan    -redis URL -journal URL -namespace NAME [-status N] [-rate N]
//	onceguard forget  -redis URL -journal URL -namespace NAME -reason TEXT -list FILE
//
// Keys, flags, output, log and exit codes are those of the root's command. What differs:
//
//   - After exit code 1 a change to the journal may still be made for 5 s, whatever -timeout is.
//   - The state is that of Redis and the journal together, as the next request meets it. The line "redis" has the state
//     in Redis, and "journal" that of the row. "swept" says how often Journal.Sweep has handed the row out. "note" is
//     what the handler has stored by Journal.Note.
//   - TOKEN may name both what Redis has and the row, with a + between them. Give it as inspect has printed it.
//   - resolve and forget change the row first, and then Redis. resolve also works on a row that a sweep has, and gives a
//     response to a row that a sweep has ended without one.
//   - With -redis none, for a service without Redis (lock.None), each command works on the rows alone. If the service
//     does have Redis, resolve then cannot see a process that still renews its lease, and the key stays as it is in
//     Redis.
//   - If Redis does not answer, inspect prints what the journal has and "redis unknown", and exits with 1.
//   - A lock has no row: -lock asks Redis alone.
//   - scan lists the rows without an outcome first, then those that a sweep has marked as done without a response, then
//     the keys that only Redis has. It reads the whole table in one statement: if the table is large, give a longer
//     -timeout. Each row for which it asks Redis counts towards -rate. With -status: the rows with such a response, then
//     those that only Redis has.
//
// # The journal's URL
//
// Without -journal it is taken from JOURNAL_URL. Its password is never printed. Other users of the machine can see the
// arguments of a process, so a URL with a password belongs in the environment, or its password in PGPASSFILE.
//
//	postgres://[user[:password]@]host[:port]/database[?search_path=SCHEMA]    as pgx takes it
//	mysql://[user[:password]@]host[:port]/database[?parameters]               MariaDB as well; those of the driver go-sql-driver/mysql
//	sqlite:PATH                                                               an existing file
//
// The user of a server needs SELECT on onceguard_journal for inspect and scan, and UPDATE, INSERT and DELETE as well to
// change something.
package main

import (
	"os"

	"github.com/onceguard/onceguard/internal/operate"
)

func main() { os.Exit(operate.Main(openJournal)) }
