package sqljournal

import (
	_ "embed"
	"fmt"
)

// Dialect names a kind of database.
type Dialect string

const (
	DialectPostgreSQL Dialect = "postgresql" // docs/servers.md lists the versions on which the tests have passed
	DialectMySQL      Dialect = "mysql"      // MySQL and MariaDB: likewise
	DialectSQLite     Dialect = "sqlite"     // version 3.35 or later
)

var (
	//go:embed schema/postgresql.sql
	schemaPostgreSQL string

	//go:embed schema/mysql.sql
	schemaMySQL string

	//go:embed schema/sqlite.sql
	schemaSQLite string

	//go:embed schema/postgresql_1to2.sql
	upgradePostgreSQL string

	//go:embed schema/sqlite_1to2.sql
	upgradeSQLite string
)

// Schema returns the statements that create the table of a journal, of version 2, and its indexes, separated by semicolons. They fail
// if the table exists. It panics on an unknown dialect.
//
// The table belongs to the first schema of PostgreSQL's search_path, or to MySQL's database in the DSN; the statements of
// a [Journal] find it by the same rule. The user of a Journal needs SELECT, INSERT, UPDATE and DELETE on it.
func Schema(dialect Dialect) string {
	switch dialect {
	case DialectPostgreSQL:
		return schemaPostgreSQL
	case DialectMySQL:
		return schemaMySQL
	case DialectSQLite:
		return schemaSQLite
	}
	panic(fmt.Sprintf("sqljournal.Schema: unknown dialect %q", string(dialect)))
}

// Upgrade returns the statements that bring a table from version 1, which had no columns run and fingerprint, to
// version 2, separated by semicolons. They fail if the table has that version already. On PostgreSQL they take no
// time, but wait for open transactions that use the table.
//
// Run them before the first instance of this release starts: its journals need the new columns, and [Journal.Check]
// returns [ErrOldSchema] without them. Instances of the release before work on the upgraded table, so no instance has to
// stop. While they run, a row that one of them has swept refuses a late response. For MySQL there are no statements, as
// its first table had version 2. Upgrade panics on an unknown dialect.
func Upgrade(dialect Dialect) string {
	switch dialect {
	case DialectPostgreSQL:
		return upgradePostgreSQL
	case DialectMySQL:
		return ""
	case DialectSQLite:
		return upgradeSQLite
	}
	panic(fmt.Sprintf("sqljournal.Upgrade: unknown dialect %q", string(dialect)))
}
