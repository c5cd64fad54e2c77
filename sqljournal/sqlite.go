package sqljournal

import "time"

// sqlite has one writer at a time. A transaction that reads first and writes later fails if another has written in
// between, despite the busy timeout. So a transaction takes the write lock first.
var sqlite = dialect{
	operatorStatements: sqliteOperator,
	check:              checkSQLite,

	unit: time.Millisecond,

	look: sqliteLook + ` where key = ?1`,

	looksFirst: true, // an INSERT waits for the writer
	begin: `
insert into onceguard_journal (key, token, state, note, until)
values (?1, ?2, 1, ?3, ` + sqliteNow + ` + ?4)
on conflict (key) do nothing`,

	insert: `
insert into onceguard_journal (key, token, state, record, expires_at)
values (?1, ?2, 2, ?3, ` + sqliteNow + ` + ?4)
on conflict (key) do nothing`,
	removeExpired: `delete from onceguard_journal where key = ?1 and expires_at <= ` + sqliteNow,

	finish: `
update onceguard_journal set state = 2, record = ?3, note = null, until = null, expires_at = ` + sqliteNow + ` + ?4
where key = ?1 and token = ?2 and state = 1`,

	free: `delete from onceguard_journal where key = ?1 and token = ?2 and state = 1`,

	note: `update onceguard_journal set note = ?3 where key = ?1 and token = ?2 and state = 1`,

	finishSwept: `
update onceguard_journal set state = 2, token = coalesce(run, token), record = ?3, note = null, until = null, fingerprint = ?5,
  expires_at = ` + sqliteNow + ` + ?4
where key = ?1 and token = ?2 and state = 1`,
	fill: `
update onceguard_journal set state = 2, record = ?3, note = null, until = null, fingerprint = null,
  expires_at = ` + sqliteNow + ` + ?4
where key = ?1 and ` + ownerOfRow + ` = ?2 and record is null and (?5 is null and state = 2 or ` + sqliteNow + ` < ?5)`,

	opening:    `update onceguard_journal set attempts = attempts where 0`,
	probeFound: sqliteLook + ` where key = ?1`,

	sweep: `
update onceguard_journal set token = ?1, run = ` + ownerOfRow + `, attempts = attempts + 1, until = ` + sqliteNow + ` + ?2
where key = (
  select key from onceguard_journal
  where state = 1 and until < coalesce(?4, ` + sqliteNow + `)
    and (attempts > 0 or until < coalesce(?4, ` + sqliteNow + `) - ?3)
    and substr(key, 1, length(?5)) = ?5
  order by until limit 1)
returning key, note, began_at, attempts, ` + sqliteNow,

	expire: `
delete from onceguard_journal where key in (
  select key from onceguard_journal where state = 2 and expires_at <= ` + sqliteNow + `
    and substr(key, 1, length(?1)) = ?1
  order by expires_at limit 1000)`,
}

const (
	// sqliteNow is the time in milliseconds since 1970. It is the same throughout a statement.
	sqliteNow = `cast(round((julianday('now') - 2440587.5) * 86400000) as integer)`

	sqliteLook = `
select key, ` + ownerOfRow + `, state, note, record, coalesce(until, expires_at) - ` + sqliteNow + `,
  ` + sqliteNow + ` - began_at, attempts > 0, ` + fingerprintOfRow + `
from onceguard_journal`
)
