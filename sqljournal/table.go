package sqljournal

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// table is the table of a journal, whatever its namespace is. It executes statements on connections of its own.
type table struct {
	db      *sql.DB
	dialect *dialect

	// for all tries to find out whether a transaction was committed; tests change it
	probeTime time.Duration
	// how long an override may act, once it has read the database's time; tests change it
	overrideTime time.Duration
}

// lookRow returns the row of key.
func (t *table) lookRow(ctx context.Context, key string) (r row, err error) {
	rows, err := t.dialect.query(ctx, t.db, t.dialect.look, key)
	_, err = scanRow(rows, err, r.columns()...)
	return r, err
}

// removeExpired deletes the row of key if it has expired. No statement replaces a row.
func (t *table) removeExpired(ctx context.Context, key string) error {
	_, err := t.dialect.exec(ctx, t.db, t.dialect.removeExpired, key)
	return err
}

// transaction runs fn and then commit in a transaction. commit ends it, and then calls release. commitSent is true if a
// COMMIT may have been sent.
func (t *table) transaction(ctx context.Context, opts *sql.TxOptions, fn func(*sql.Tx) error,
	commit func(tx *sql.Tx, release func(endErr error)) error,
) (commitSent bool, err error) {
	tx, release, err := t.beginTx(ctx, opts)
	if err != nil {
		return false, err
	}
	defer func() {
		if !commitSent { // after a panic or a Goexit, too
			release(tx.Rollback())
		}
	}()
	if opts == nil || !opts.ReadOnly {
		if err := t.dialect.open(ctx, tx); err != nil {
			return false, err
		}
	}
	if err := fn(tx); err != nil {
		return false, err
	}
	commitSent = true
	return commitSent, commit(tx, release)
}

func commitNow(tx *sql.Tx, release func(error)) error {
	err := tx.Commit()
	release(err)
	return err
}

// beginTx begins a transaction. release gives its connection back, and must be called with the error of Commit or Rollback.
func (t *table) beginTx(ctx context.Context, opts *sql.TxOptions) (tx *sql.Tx, release func(endErr error), err error) {
	if t.dialect.autocommitOff == "" || opts != nil && opts.ReadOnly {
		tx, err = t.db.BeginTx(ctx, opts)
		return tx, func(error) {}, err
	}
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	release = func(endErr error) { t.giveBack(ctx, conn, endErr) }
	if tx, err = conn.BeginTx(ctx, opts); err != nil {
		release(err)
		return nil, nil, err
	}
	if _, err = tx.ExecContext(ctx, t.dialect.autocommitOff); err != nil {
		release(tx.Rollback())
		return nil, nil, err
	}
	return tx, release, nil
}

// giveBack gives back the connection of a transaction that has ended with an error or without. With any error the connection
// is closed: it may be without autocommit, or the transaction may still be open, which autocommit would commit. The closing
// waits until the pool itself has rolled the transaction back, on a silent network for a long time.
func (t *table) giveBack(ctx context.Context, conn *sql.Conn, err error) {
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.probeTime)
		defer cancel()
		_, err = conn.ExecContext(ctx, t.dialect.autocommitOn)
	}
	if err != nil {
		go func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
		return
	}
	_ = conn.Close()
}

// rollBack ends a transaction that must not be committed. An error would mean that it has already ended, or that its
// connection is broken. Then the server rolls it back.
func rollBack(tx *sql.Tx) { _ = tx.Rollback() }

// ownTransaction runs fn in a transaction that only waits for rows, and commits it.
func (t *table) ownTransaction(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: t.dialect.readCommitted})
	if err != nil {
		return err
	}
	defer rollBack(tx)
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
