package sqljournal

// operatorStatements are the statements for operators. The first two select the columns that [Journal.infos] scans:
// key, token, state, note, when the run began, the time left, attempts, whether there is a record, its size.
type operatorStatements struct {
	// key
	inspect string
	// prefix of the keys
	scan string

	// Overrides: see [table.overrideUntil]. They change nothing from the time until on. run is compared with ownerOfRow.
	// key, run, state, whether the record is NULL, whether its time may be left, until
	forget string
	// key, run, until: deletes the intent row
	freeRun string
	// key, run, record, keep, until: inserts a row that is done, if there is no row
	insertRun string
	// the database's time, in units since 1970
	now string
}

var postgresqlOperator = operatorStatements{
	inspect: postgresqlInfo + ` where key = $1::text`,
	scan: postgresqlInfo + `
where starts_with(key collate "C", $1::text) and (state = 1 or record is null)
order by state, until, key`,
	forget: `
delete from onceguard_journal
where key = ` + postgresqlLocked + ` and ` + ownerOfRow + ` = $2::text::uuid and state = $3::smallint and (record is null) = $4::boolean
  and (state = 2 or until < statement_timestamp() or $5::boolean)
  and clock_timestamp() < timestamptz 'epoch' + $6::bigint * interval '1 microsecond'`,
	freeRun: `
delete from onceguard_journal
where key = ` + postgresqlLocked + ` and ` + ownerOfRow + ` = $2::text::uuid and state <> 2
  and clock_timestamp() < timestamptz 'epoch' + $3::bigint * interval '1 microsecond'`,
	insertRun: `
insert into onceguard_journal (key, token, state, record, expires_at)
select $1::text, $2::text::uuid, 2, $3::bytea, statement_timestamp() + $4::bigint * interval '1 microsecond'
where clock_timestamp() < timestamptz 'epoch' + $5::bigint * interval '1 microsecond'`,
	now: `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`,
}

var sqliteOperator = operatorStatements{
	inspect: sqliteInfo + ` where key = ?1`,
	scan: sqliteInfo + `
where substr(key, 1, length(?1)) = ?1 and (state = 1 or record is null)
order by state, until, key`,
	forget: `
delete from onceguard_journal
where key = ?1 and ` + ownerOfRow + ` = ?2 and state = ?3 and (record is null) = ?4 and (state = 2 or until < ` + sqliteNow + ` or ?5)
  and ` + sqliteNow + ` < ?6`,
	freeRun: `delete from onceguard_journal where key = ?1 and ` + ownerOfRow + ` = ?2 and state = 1 and ` + sqliteNow + ` < ?3`,
	insertRun: `
insert into onceguard_journal (key, token, state, record, expires_at)
select ?1, ?2, 2, ?3, ` + sqliteNow + ` + ?4 where ` + sqliteNow + ` < ?5
on conflict (key) do nothing`,
	now: `select ` + sqliteNow,
}

const (
	postgresqlInfo = `
select key, (` + ownerOfRow + `)::text, state, note, (extract(epoch from began_at) * 1000000)::bigint,
  (extract(epoch from coalesce(until, expires_at) - statement_timestamp()) * 1000000)::bigint,
  attempts, record is not null, coalesce(octet_length(record), 0)
from onceguard_journal`

	sqliteInfo = `
select key, ` + ownerOfRow + `, state, note, began_at, coalesce(until, expires_at) - ` + sqliteNow + `,
  attempts, record is not null, coalesce(length(record), 0)
from onceguard_journal`
)
