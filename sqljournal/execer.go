package sqljournal

import (
	"context"
	"database/sql"
	"errors"
)

// Execer executes a statement, as *[sql.Tx], *[sql.Conn] and *[sql.DB] do. [Pgx] makes one of a transaction of pgx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Pgx returns an Execer for a pgx.Tx, or anything else with the Exec of pgx. The type of Exec's result is inferred, so
// this package does not import pgx.
func Pgx[R interface{ RowsAffected() int64 }](tx interface {
	Exec(ctx context.Context, sql string, args ...any) (R, error)
}) Execer {
	return execFunc(func(ctx context.Context, query string, args ...any) (sql.Result, error) {
		tag, err := tx.Exec(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		return rowsAffected(tag.RowsAffected()), nil
	})
}

type execFunc func(ctx context.Context, query string, args ...any) (sql.Result, error)

func (f execFunc) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return f(ctx, query, args...)
}

// rowsAffected is the result of a statement that has changed n rows.
type rowsAffected int64

func (n rowsAffected) RowsAffected() (int64, error) { return int64(n), nil }

func (rowsAffected) LastInsertId() (int64, error) {
	return 0, errors.New("sqljournal: LastInsertId is not supported")
}
