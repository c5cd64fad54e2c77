package sqljournal

import (
	"database/sql"
	"time"
)

// postgresql has a cast on each parameter, for connections that do not prepare statements. A string is sent as text,
// and cast from text. The time is statement_timestamp(): clock_timestamp() is volatile and would prevent the use of
// indexes.
var postgresql = dialect{
	operatorStatements: postgresqlOperator,
	check:              checkPostgreSQL,

	unit: time.Microsecond,

	look: postgresqlLook + ` where key = $1::text`,

	// It checks for a row first, so that a duplicate does not wait for an open transaction.
	begin: `
insert into onceguard_journal (key, token, state, note, until)
select $1::text, $2::text::uuid, 1, $3::bytea, statement_timestamp() + $4::bigint * interval '1 microsecond'
where not exists (select from onceguard_journal where key = $1::text)
on conflict (key) do nothing`,

	insert: `
insert into onceguard_journal (key, token, state, record, expires_at)
values ($1::text, $2::text::uuid, 2, $3::bytea, statement_timestamp() + $4::bigint * interval '1 microsecond')`,
	removeExpired: `delete from onceguard_journal where key = $1::text and expires_at <= statement_timestamp()`,

	// "state <> 2" is "state = 1", but keeps the planner from the index on rows with "state = 1": while that is nearly
	// empty it looks cheaper than the primary key, and many runs at once would each read all of it.
	finish: `
update onceguard_journal set state = 2, record = $3::bytea, note = null, until = null,
  expires_at = statement_timestamp() + $4::bigint * interval '1 microsecond'
where key = $1::text and token = $2::text::uuid and state <> 2`,

	free: `delete from onceguard_journal where key = $1::text and token = $2::text::uuid and state <> 2`,

	note: `
update onceguard_journal set note = $3::bytea where key = $1::text and token = $2::text::uuid and state <> 2`,

	finishSwept: `
update onceguard_journal set state = 2, token = coalesce(run, token), record = $3::bytea, note = null, until = null, fingerprint = $5::bytea,
  expires_at = statement_timestamp() + $4::bigint * interval '1 microsecond'
where key = $1::text and token = $2::text::uuid and state <> 2`,
	fill: `
update onceguard_journal set state = 2, record = $3::bytea, note = null, until = null, fingerprint = null,
  expires_at = statement_timestamp() + $4::bigint * interval '1 microsecond'
where key = ` + postgresqlLocked + ` and ` + ownerOfRow + ` = $2::text::uuid and record is null
  and ($5::bigint is null and state = 2 or clock_timestamp() < timestamptz 'epoch' + $5::bigint * interval '1 microsecond')`,

	readCommitted: sql.LevelReadCommitted,
	probe: `
insert into onceguard_journal (key, token, state, until)
values ($1::text, $2::text::uuid, 1, statement_timestamp())
on conflict (key) do nothing`,
	probeFound: postgresqlLook + ` where key = $1::text for update`,

	sweep: `
update onceguard_journal set token = $1::text::uuid, run = ` + ownerOfRow + `, attempts = attempts + 1,
  until = statement_timestamp() + $2::bigint * interval '1 microsecond'
where key = (
  select key from onceguard_journal
  where state = 1 and until < ` + postgresqlSince + `
    and (attempts > 0 or until < ` + postgresqlSince + ` - $3::bigint * interval '1 microsecond')
    and starts_with(key collate "C", $5::text)
  order by until limit 1 for update skip locked)
returning key, note, (extract(epoch from began_at) * 1000000)::bigint, attempts,
  (extract(epoch from statement_timestamp()) * 1000000)::bigint`,

	expire: `
delete from onceguard_journal where key = any (array(
  select key from onceguard_journal
  where state = 2 and expires_at <= statement_timestamp() and starts_with(key collate "C", $1::text)
  order by expires_at limit 1000 for update skip locked))`,
}

const (
	postgresqlLook = `
select key, (` + ownerOfRow + `)::text, state, note, record,
  (extract(epoch from coalesce(until, expires_at) - statement_timestamp()) * 1000000)::bigint,
  (extract(epoch from statement_timestamp() - began_at) * 1000000)::bigint, attempts > 0,
  ` + fingerprintOfRow + `
from onceguard_journal`
	// postgresqlSince is the time of a sweep's first statement.
	postgresqlSince = `coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', statement_timestamp())`
	// postgresqlLocked is a key whose row the statement waits for before it reads the clock.
	postgresqlLocked = `(select key from onceguard_journal where key = $1::text for update)`
)
