package sqljournal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Findings of [Journal.Check].
var (
	// ErrTable means that the table of [Schema] is missing or has other columns.
	ErrTable = errors.New("sqljournal: no usable table onceguard_journal")

	// ErrOldSchema means that the table is that of an earlier release: [Upgrade] has the statements that are missing. It is
	// an ErrTable as well.
	ErrOldSchema = fmt.Errorf("%w: it is of version 1, see sqljournal.Upgrade", ErrTable)

	// ErrReadOnly means that the database takes no writes: it is a standby, or set to read only.
	ErrReadOnly = errors.New("sqljournal: the database is read-only")

	// ErrNotDurable means that a crash of the database, or a failover to a standby, may lose what was committed.
	ErrNotDurable = errors.New("sqljournal: a commit is not durable")

	// ErrSetting means that a journal does not work with a setting or the version of MySQL or MariaDB: its rows may not be
	// committed, for example. A program must not start with it.
	ErrSetting = errors.New("sqljournal: the database or its settings do not fit")

	// ErrBusy means that SQLite fails a transaction when others are open, instead of letting it wait.
	ErrBusy = errors.New("sqljournal: concurrent transactions may fail")
)

// Check asks the database whether it is fit for a journal. Call it at the start of a program, and end the program after an
// [ErrTable] or an [ErrSetting]. Its error joins the findings, to be tested with errors.Is:
//
//   - [ErrTable], [ErrOldSchema], [ErrReadOnly].
//   - [ErrNotDurable]: fsync, full_page_writes or synchronous_commit is off, or the table is unlogged. With SQLite,
//     synchronous is less than full, or the database is in memory. With MySQL, innodb_flush_log_at_trx_commit or, with a
//     binary log, sync_binlog is not 1, or innodb_doublewrite is off. With PostgreSQL also: standbys are connected, and a
//     commit waits for none, as synchronous_standby_names is empty or synchronous_commit is local.
//   - [ErrSetting], with MySQL: autocommit is off, completion_type is not NO_CHAIN, sql_mode is not strict or has ORACLE or
//     EMPTY_STRING_IS_NULL, max_allowed_packet is less than 4 MiB (it must be more than twice middleware.WithMaxResponse),
//     the binary log has statements, the default isolation is READ UNCOMMITTED, or the version has no SKIP LOCKED. A table
//     of another engine than InnoDB is an ErrTable.
//   - [ErrBusy], with SQLite: the journal mode is not WAL, or there is no busy_timeout.
//
// Any other error means that the database did not answer, or that it refuses a journal's statements: Check stores a
// row with a random key in a transaction, and rolls it back. The settings are those of one connection of the pool.
func (j *Journal) Check(ctx context.Context) error {
	tx, err := j.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqljournal: check: %w", err)
	}
	defer rollBack(tx)
	findings, err := j.dialect.check(ctx, tx)
	if err == nil && !slices.ContainsFunc(findings, preventsWrites) {
		err = j.dialect.rehearse(ctx, tx, j.keyPrefix())
	}
	if err != nil {
		findings = append(findings, fmt.Errorf("sqljournal: check: %w", err))
	}
	return errors.Join(findings...)
}

func preventsWrites(err error) bool { return errors.Is(err, ErrTable) || errors.Is(err, ErrReadOnly) }

// rehearse stores a row, changes it and would remove it, which needs every privilege that a journal needs.
func (s *dialect) rehearse(ctx context.Context, tx *sql.Tx, prefix string) error {
	key, token := prefix+"check}"+uuid.NewString(), uuid.NewString()
	if _, err := s.exec(ctx, tx, s.insert, key, token, nil, int64(0)); err != nil {
		return err
	}
	if _, err := s.exec(ctx, tx, s.fill, key, token, []byte{}, int64(0), nil); err != nil {
		return err
	}
	_, err := s.exec(ctx, tx, s.free, key, token)
	return err
}

// compareColumns compares a table's columns, each "name type", with those that it should have. It takes the results of
// a query. Its findings are an ErrTable or nothing. upgrade are the statements for a table of version 1, if there was one.
func compareColumns(rows *sql.Rows, err error, upgrade string, want ...string) (findings []error, _ error) {
	got, err := scanTexts(rows, err)
	if err != nil {
		return nil, err
	}
	if len(got) == 0 {
		return []error{fmt.Errorf("%w: it is missing, see sqljournal.Schema", ErrTable)}, nil
	}
	missing := slices.DeleteFunc(want, func(column string) bool { return slices.Contains(got, column) })
	isNew := func(column string) bool {
		return strings.HasPrefix(column, "run ") || strings.HasPrefix(column, "fingerprint ")
	}
	switch old := slices.DeleteFunc(slices.Clone(missing), isNew); {
	case len(missing) == 0:
		return nil, nil
	case len(old) == 0 && upgrade != "":
		return []error{ErrOldSchema}, nil
	}
	return []error{fmt.Errorf("%w: it does not have %q, but has %q", ErrTable, missing, got)}, nil
}

func checkPostgreSQL(ctx context.Context, tx *sql.Tx) ([]error, error) {
	rows, err := tx.QueryContext(ctx, `
select a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || case when i.indexrelid is null then '' else ' unique' end
from pg_attribute a
left join pg_index i on i.indrelid = a.attrelid and i.indisunique and i.indisvalid and i.indpred is null
  and i.indnkeyatts = 1 and i.indkey[0] = a.attnum
where a.attrelid = to_regclass('onceguard_journal') and a.attnum > 0 and not a.attisdropped`)
	findings, err := compareColumns(rows, err, Upgrade(DialectPostgreSQL), "key text unique", "token uuid", "state smallint", "note bytea", "record bytea",
		"began_at timestamp with time zone", "until timestamp with time zone", "expires_at timestamp with time zone",
		"attempts integer", "run uuid", "fingerprint bytea")
	if err != nil {
		return nil, err
	}
	var readOnly, unlogged bool
	var fsync, pages, commit, names string
	var standbys int
	err = tx.QueryRowContext(ctx, `
select pg_is_in_recovery() or current_setting('transaction_read_only') = 'on',
  exists (select from pg_class where oid = to_regclass('onceguard_journal') and relpersistence <> 'p'),
  current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
  current_setting('synchronous_standby_names'), (select count(*) from pg_stat_replication where state is distinct from 'backup')`,
	).Scan(&readOnly, &unlogged, &fsync, &pages, &commit, &names, &standbys)
	if err != nil {
		return nil, err
	}
	if readOnly {
		findings = append(findings, ErrReadOnly)
	}
	if fsync != "on" || pages != "on" || commit == "off" || unlogged {
		findings = append(findings, fmt.Errorf("%w: fsync %s, full_page_writes %s, synchronous_commit %s, table unlogged: %t",
			ErrNotDurable, fsync, pages, commit, unlogged))
	}
	if standbys > 0 && (strings.TrimSpace(names) == "" || commit == "local" || commit == "off") {
		findings = append(findings, fmt.Errorf("%w: a failover may lose it: %d connected, synchronous_standby_names %q, synchronous_commit %s",
			ErrNotDurable, standbys, names, commit))
	}
	return findings, nil
}

func checkSQLite(ctx context.Context, tx *sql.Tx) ([]error, error) {
	rows, err := tx.QueryContext(ctx, `
select name || ' ' || lower(type) || case when pk = 1 then ' unique' else '' end from pragma_table_info('onceguard_journal')`)
	findings, err := compareColumns(rows, err, Upgrade(DialectSQLite), "key text unique", "token text", "state integer", "note blob", "record blob",
		"began_at integer", "until integer", "expires_at integer", "attempts integer", "run text", "fingerprint blob")
	if err != nil {
		return nil, err
	}
	var mode string
	var timeout, synchronous, queryOnly int
	for _, pragma := range []struct {
		name string
		dest any
	}{{"journal_mode", &mode}, {"busy_timeout", &timeout}, {"synchronous", &synchronous}, {"query_only", &queryOnly}} {
		if err := tx.QueryRowContext(ctx, "pragma "+pragma.name).Scan(pragma.dest); err != nil {
			return nil, err
		}
	}
	if queryOnly != 0 {
		findings = append(findings, ErrReadOnly)
	}
	const full = 2
	if mode == "memory" || mode == "off" || synchronous < full {
		findings = append(findings, fmt.Errorf("%w: journal_mode %s, synchronous %d", ErrNotDurable, mode, synchronous))
	}
	if mode != "wal" || timeout <= 0 {
		findings = append(findings, fmt.Errorf("%w: journal_mode %s, busy_timeout %d ms", ErrBusy, mode, timeout))
	}
	return findings, nil
}
