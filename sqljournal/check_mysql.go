package sqljournal

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// leastPacket is the least max_allowed_packet: for the longest response that is stored by default, 1 MiB in hex, with its row.
const leastPacket = 4 << 20

func checkMySQL(ctx context.Context, tx *sql.Tx) ([]error, error) {
	set, err := settingsOfMySQL(ctx, tx)
	if err != nil {
		return nil, err
	}
	if mode := set["sql_mode"]; strings.Contains(mode, "EMPTY_STRING_IS_NULL") || strings.Contains(mode, "ORACLE") { // what follows reads NULL otherwise
		return []error{misfit(set, "sql_mode")}, nil
	}
	rows, err := tx.QueryContext(ctx, `
select concat(column_name, ' ', data_type, coalesce(concat('(', if(data_type like '%binary', character_octet_length, null), ')'), ''),
  if(column_key = 'PRI', ' unique', ''))
from information_schema.columns where table_schema = database() and table_name = 'onceguard_journal'`)
	findings, err := compareColumns(rows, err, Upgrade(DialectMySQL), "key varbinary(767) unique", "token binary(36)", "state tinyint", "note blob",
		"record longblob", "began_at bigint", "until bigint", "expires_at bigint", "attempts int", "run binary(36)", "fingerprint blob")
	if err != nil {
		return nil, err
	}
	if engine := set["engine"]; engine != "" && !strings.EqualFold(engine, "InnoDB") {
		findings = append(findings, fmt.Errorf("%w: its engine is %s, not InnoDB", ErrTable, engine))
	}
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "transaction_read_only", "tx_read_only"} {
		if value := set[name]; value != "" && value != "OFF" {
			findings = append(findings, fmt.Errorf("%w: %s is %s", ErrReadOnly, name, value))
		}
	}
	if set["innodb_flush_log_at_trx_commit"] != "1" || set["innodb_doublewrite"] == "OFF" || set["log_bin"] == "ON" && set["sync_binlog"] != "1" {
		findings = append(findings, fmt.Errorf("%w: innodb_flush_log_at_trx_commit %s, innodb_doublewrite %s, log_bin %s, sync_binlog %s",
			ErrNotDurable, set["innodb_flush_log_at_trx_commit"], set["innodb_doublewrite"], set["log_bin"], set["sync_binlog"]))
	}
	findings = append(findings, misfits(set)...)
	if slices.ContainsFunc(findings, preventsWrites) {
		return findings, nil
	}
	if err = knowsSkipLocked(ctx, tx); mysqlNumber(err) == mysqlSyntax {
		return append(findings, fmt.Errorf("%w: version %s does not know SKIP LOCKED", ErrSetting, set["version"])), nil
	}
	return findings, err
}

// misfit returns the finding that a setting does not fit.
func misfit(set map[string]string, name string) error {
	return fmt.Errorf("%w: %s is %q", ErrSetting, name, set[name])
}

// misfits returns what a journal does not work with.
func misfits(set map[string]string) (findings []error) {
	packet, err := strconv.Atoi(set["max_allowed_packet"])
	isolation := set["transaction_isolation"] + set["tx_isolation"] // one of them, or both, depending on the version
	for _, setting := range []struct {
		name string
		fits bool
	}{
		{"autocommit", set["autocommit"] == "ON"},
		{"completion_type", set["completion_type"] == "NO_CHAIN"},
		{"sql_mode", strings.Contains(set["sql_mode"], "STRICT_TRANS_TABLES") || strings.Contains(set["sql_mode"], "STRICT_ALL_TABLES")},
		{"max_allowed_packet", err == nil && packet >= leastPacket},
		{"binlog_format", set["log_bin"] != "ON" || set["binlog_format"] != "STATEMENT"},
	} {
		if !setting.fits {
			findings = append(findings, misfit(set, setting.name))
		}
	}
	if strings.Contains(isolation, "READ-UNCOMMITTED") {
		findings = append(findings, fmt.Errorf("%w: the default isolation is READ UNCOMMITTED", ErrSetting))
	}
	return findings
}

// settingsOfMySQL returns the session's variables that checkMySQL reads and, as engine, the one of the table.
func settingsOfMySQL(ctx context.Context, tx *sql.Tx) (map[string]string, error) {
	set := map[string]string{}
	rows, err := tx.QueryContext(ctx, `
show session variables where variable_name in ('autocommit', 'binlog_format', 'completion_type', 'innodb_doublewrite',
  'innodb_flush_log_at_trx_commit', 'innodb_read_only', 'log_bin', 'max_allowed_packet', 'read_only', 'sql_mode', 'super_read_only',
  'sync_binlog', 'transaction_isolation', 'transaction_read_only', 'tx_isolation', 'tx_read_only', 'version')`)
	var name, value string
	if err = scanRows(rows, err, func() { set[strings.ToLower(name)] = value }, &name, &value); err != nil {
		return nil, err
	}
	var engine sql.NullString
	err = tx.QueryRowContext(ctx, `
select max(engine) from information_schema.tables where table_schema = database() and table_name = 'onceguard_journal'`).Scan(&engine)
	set["engine"] = engine.String
	return set, err
}

// knowsSkipLocked returns an error of syntax if the server does not know SKIP LOCKED.
func knowsSkipLocked(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, `select state from onceguard_journal j where j.key = '' for update skip locked`)
	if err != nil {
		return err
	}
	return rows.Close()
}
