package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/onceguard/onceguard/internal/operate"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/sqljournal"
)

// errWrongURL is the error of every URL that is not accepted. It does not say what is wrong: the parts of a password that
// is not in percent-encoding can be anywhere in what a parser has made of the URL.
var errWrongURL = operate.UsageError("-journal: want postgres://[user[:password]@]host[:port]/database " +
	"or mysql://..., with a password in percent-encoding, or sqlite:PATH")

// openJournal is an [operate.OpenJournal]. It sends nothing yet.
func openJournal(_ context.Context, source, namespace string) (operate.Journal, error) {
	db, opts, err := openDatabase(source)
	if err != nil {
		return nil, err
	}
	// The mode matters to a run alone: both modes read, end and free the same rows.
	return opened{sqljournal.Intent(db, namespace, opts...), db}, nil
}

func openDatabase(source string) (*sql.DB, []sqljournal.Option, error) {
	if path, ok := strings.CutPrefix(source, "sqlite:"); ok && path != "" {
		db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=rw&_pragma=busy_timeout(5000)")
		return db, []sqljournal.Option{sqljournal.SQLite()}, err
	}
	u, err := url.Parse(source)
	if err != nil || u.Fragment != "" || strings.Contains(u.EscapedPath()+u.RawQuery, "@") {
		return nil, nil, errWrongURL // a password with a # or / or ? that is not encoded ends there
	}
	switch u.Scheme {
	case "postgres", "postgresql":
	case "mysql":
		db, err := openMySQL(u)
		return db, []sqljournal.Option{sqljournal.MySQL()}, err
	default:
		return nil, nil, errWrongURL
	}
	config, err := pgx.ParseConfig(source)
	if err != nil {
		return nil, nil, errWrongURL
	}
	return stdlib.OpenDB(*config), nil, nil
}

func openMySQL(u *url.URL) (*sql.DB, error) {
	config, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil || u.Hostname() == "" || len(u.Path) < 2 {
		return nil, errWrongURL
	}
	config.User, config.DBName = u.User.Username(), u.Path[1:]
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	config.Logger = &mysql.NopLogger{} // the command prints the error
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errWrongURL
	}
	return sql.OpenDB(connector), nil
}

// opened is a journal and its database.
type opened struct {
	*sqljournal.Journal
	db *sql.DB
}

func (o opened) Row(ctx context.Context, key string) (operate.Row, error) {
	i, err := o.Inspect(ctx, key)
	return operate.Row{
		Key: i.Key, State: i.State, Token: i.Token, Run: i.Run, Began: i.Began, Left: i.Left,
		Attempts: i.Attempts, Response: i.Size > 0, Size: i.Size, Note: i.Note,
	}, err
}

// Keys reads the table itself for those that are answered, because no user of package sqljournal needs such a list.
func (o opened) Keys(ctx context.Context, answered bool) (keys []string, err error) {
	if !answered {
		infos, err := o.Scan(ctx)
		for _, i := range infos {
			keys = append(keys, i.Key)
		}
		return keys, err
	}
	rows, err := o.db.QueryContext(ctx, "select onceguard_journal.key from onceguard_journal where state = 2 and record is not null")
	if err != nil {
		return nil, fmt.Errorf("sqljournal: scan: %w", err)
	}
	defer rows.Close()
	for key := ""; rows.Next() && err == nil; {
		if err = rows.Scan(&key); err == nil && strings.HasPrefix(key, o.Namespace()+":{") {
			keys = append(keys, key)
		}
	}
	return keys, errors.Join(err, rows.Err())
}

func (o opened) Remove(ctx context.Context, key, token string, evenIfLive bool) error {
	err := o.Forget(ctx, key, token, evenIfLive)
	for found, means := range map[error]error{sqljournal.ErrLost: lock.ErrChanged, sqljournal.ErrRunning: lock.ErrLive} {
		if errors.Is(err, found) {
			return fmt.Errorf("%w: %w", means, err)
		}
	}
	return err
}

func (o opened) Close() error { return o.db.Close() }
