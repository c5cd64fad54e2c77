package sqljournal

import (
	"database/sql"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"
	"time"
)

// mysql is for MySQL and MariaDB. What is different there:
//
//   - How many rows an UPDATE has changed depends on the DSN: see note. No statement has ON DUPLICATE KEY UPDATE.
//   - An UPDATE assigns from left to right, so that a later expression reads the new value of a column.
//   - A row that a statement has waited for is read as it is now, but at REPEATABLE READ a plain SELECT reads an older one. So
//     a look is a statement of its own.
//   - A statement may end the transaction, or commit it: see opening and autocommitOff.
//   - The driver sends bytes as text, which the server converts if character_set_client is not character_set_connection. A
//     handler may change both. Digits survive that, so text and bytes are sent in hex.
//   - UTC_TIMESTAMP does not depend on the session's time zone, and is the same throughout a statement: also of one that has
//     waited for a row, for innodb_lock_wait_timeout at most. SYSDATE would differ on a replica that executes statements.
var mysql = dialect{
	unit:         time.Microsecond,
	rewrite:      positional,
	maxNamespace: 600, // the column of the key takes 767 bytes

	look: mysqlLook + ` where j.key = unhex($1)`,

	looksFirst: true, // its INSERT of a key waits for the transaction that has the row
	begin: `
insert into onceguard_journal (onceguard_journal.key, token, state, note, began_at, until)
values (unhex($1), unhex($2), 1, unhex($3), ` + mysqlNow + `, ` + mysqlNow + ` + $4)`,

	insert: `
insert into onceguard_journal (onceguard_journal.key, token, state, record, began_at, expires_at)
values (unhex($1), unhex($2), 2, unhex($3), ` + mysqlNow + `, ` + mysqlNow + ` + $4)`,
	removeExpired: `delete from onceguard_journal where onceguard_journal.key = unhex($1) and expires_at <= ` + mysqlNow,

	finish: `
update onceguard_journal j set state = 2, record = unhex($3), note = null, until = null, expires_at = ` + mysqlNow + ` + $4
where j.key = unhex($1) and token = unhex($2) and state = 1`,

	free: `delete from onceguard_journal where onceguard_journal.key = unhex($1) and token = unhex($2) and state = 1`,

	// The same note once more moves the limit by a microsecond. Otherwise it would count as no change.
	note: `
update onceguard_journal j set until = until + (note <=> unhex($3)), note = unhex($3) where j.key = unhex($1) and token = unhex($2) and state = 1`,

	finishSwept: `
update onceguard_journal j set state = 2, token = coalesce(run, token), record = unhex($3), note = null, until = null, fingerprint = unhex($5),
  expires_at = ` + mysqlNow + ` + $4
where j.key = unhex($1) and token = unhex($2) and state = 1`,
	fill: `
update onceguard_journal j set state = 2, record = unhex($3), note = null, until = null, fingerprint = null,
  expires_at = ` + mysqlNow + ` + $4
where j.key = unhex($1) and ` + ownerOfRow + ` = unhex($2) and record is null and ($5 is null and state = 2 or ` + mysqlNow + ` < $5)`,

	readCommitted: sql.LevelReadCommitted,

	// A savepoint goes with its transaction, however that ends.
	opening:   `savepoint onceguard_journal`,
	stillOpen: `release savepoint onceguard_journal`,
	abort:     `rollback`,

	autocommitOff: `set autocommit = 0`,
	autocommitOn:  `set autocommit = 1`,
	autocommits:   `set @onceguard_journal = (select 1 from (select 1 union all select 2) two where @@autocommit = 0)`,

	probeLimit: `set innodb_lock_wait_timeout = 3`, // seconds, as probeTime
	probe: `
insert into onceguard_journal (onceguard_journal.key, token, state, began_at, until)
values (unhex($1), unhex($2), 1, ` + mysqlNow + `, ` + mysqlNow + `)`,
	probeFound: mysqlLook + ` where j.key = unhex($1) for update`,

	sweep: `
select j.key, note, began_at, attempts + 1, ` + mysqlNow + ` from onceguard_journal j
where state = 1 and until < coalesce($4, ` + mysqlNow + `)
  and (attempts > 0 or until < coalesce($4, ` + mysqlNow + `) - $3)
  and left(j.key, octet_length(unhex($5))) = unhex($5)
order by until limit 1 for update skip locked`,
	sweepTake: `
update onceguard_journal j set run = ` + ownerOfRow + `, token = unhex($2), attempts = attempts + 1, until = ` + mysqlNow + ` + $3
where j.key = unhex($1)`,

	expire: `
select j.key from onceguard_journal j
where state = 2 and expires_at <= ` + mysqlNow + ` and left(j.key, octet_length(unhex($1))) = unhex($1)
order by expires_at limit 1000 for update skip locked`,
	expireTake: func(keys []string) (statement string, args []any) {
		for _, key := range keys {
			args = append(args, inHex(key))
		}
		return `delete from onceguard_journal where onceguard_journal.key in (unhex(?)` + strings.Repeat(`, unhex(?)`, len(keys)-1) + `)`, args
	},

	operatorStatements: operatorStatements{
		inspect: mysqlInfo + ` where j.key = unhex($1)`,
		scan: mysqlInfo + `
where left(j.key, octet_length(unhex($1))) = unhex($1) and (state = 1 or record is null)
order by state, until, j.key`,
		forget: `
delete from onceguard_journal
where onceguard_journal.key = unhex($1) and ` + ownerOfRow + ` = unhex($2) and state = $3 and (record is null) = $4
  and (state = 2 or until < ` + mysqlNow + ` or $5) and ` + mysqlNow + ` < $6`,
		freeRun: `
delete from onceguard_journal
where onceguard_journal.key = unhex($1) and ` + ownerOfRow + ` = unhex($2) and state = 1 and ` + mysqlNow + ` < $3`,
		insertRun: `
insert into onceguard_journal (onceguard_journal.key, token, state, record, began_at, expires_at)
select unhex($1), unhex($2), 2, unhex($3), ` + mysqlNow + `, ` + mysqlNow + ` + $4 from dual where ` + mysqlNow + ` < $5`,
		now: `select ` + mysqlNow,
	},
	check: checkMySQL,
}

const (
	// mysqlNow is the time in microseconds since 1970.
	mysqlNow = `timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', utc_timestamp(6))`

	mysqlLook = `
select j.key, ` + ownerOfRow + `, state, note, record, coalesce(until, expires_at) - ` + mysqlNow + `,
  ` + mysqlNow + ` - began_at, attempts > 0, ` + fingerprintOfRow + `
from onceguard_journal j`

	mysqlInfo = `
select j.key, ` + ownerOfRow + `, state, note, began_at, coalesce(until, expires_at) - ` + mysqlNow + `,
  attempts, record is not null, coalesce(octet_length(record), 0)
from onceguard_journal j`
)

var (
	numbered    = regexp.MustCompile(`\$[1-9]`)
	positionals sync.Map // by the statement with numbers
)

// positionalStatement is a statement whose parameters have no numbers.
type positionalStatement struct {
	text  string
	order []int // of its parameters, the number of each
}

// positional replaces the numbers of a statement's parameters by their order. Text and bytes get the form that the statement
// gives to unhex.
func positional(statement string, args []any) (string, []any) {
	found, ok := positionals.Load(statement)
	if !ok {
		var s positionalStatement
		s.text = numbered.ReplaceAllStringFunc(statement, func(number string) string {
			s.order = append(s.order, int(number[1]-'1'))
			return "?"
		})
		found, _ = positionals.LoadOrStore(statement, s)
	}
	s := found.(positionalStatement)
	ordered := make([]any, len(s.order))
	for i, n := range s.order {
		ordered[i] = inHex(args[n])
	}
	return s.text, ordered
}

// inHex returns text or bytes in hex, and anything else as it is.
func inHex(arg any) any {
	switch arg := arg.(type) {
	case string:
		return hex.EncodeToString([]byte(arg))
	case []byte:
		return hex.EncodeToString(arg)
	}
	return arg
}
