package sqljournal

import (
	_ "embed"
	"fmt"
)

// Dialect names a kind of database.
type Dialect string

const (
	DialectPostgreSQL Dialect = "postgresql" // version 12 or later
	DialectSQLite     Dialect = "sqlite"     // version 3.35 or later
)

var (
	//go:embed schema/postgresql.sql
	schemaPostgreSQL string

	//go:embed schema/sqlite.sql
	schemaSQLite string
)

// Schema returns the statements that create the table of a journal and its indexes, separated by semicolons. They fail
// if the table exists. It panics on an unknown dialect.
//
// The table belongs to the first schema of PostgreSQL's search_path; the statements of a [Journal] find it by the same
// rule. The user of a Journal needs SELECT, INSERT, UPDATE and DELETE on it.
func Schema(dialect Dialect) string {
	switch dialect {
	case DialectPostgreSQL:
		return schemaPostgreSQL
	case DialectSQLite:
		return schemaSQLite
	}
	panic(fmt.Sprintf("sqljournal.Schema: unknown dialect %q", string(dialect)))
}
