package sqljournal_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// Everything works with each setting of a connection, and each byte of a key, a note and a record comes back. Of pgx's modes exec
// and simple_protocol are for a transaction pooler: they prepare nothing, and tell the server no types of parameters. The driver
// for MySQL sends bytes as a string, which the server converts from character_set_client to character_set_connection, also if the
// handler changes one in its transaction.
//
// fault: MySQL: character_set_client is not character_set_connection, at the start or set by the handler
func TestSettings(t *testing.T) {
	t.Parallel()
	type params map[string]string
	for kind, all := range map[dbtest.Kind][]struct {
		params params
		during string // a statement of the handler
	}{
		dbtest.KindPostgreSQL: {
			{params{"default_query_exec_mode": "cache_statement"}, ""},
			{params{"default_query_exec_mode": "cache_describe"}, ""},
			{params{"default_query_exec_mode": "describe_exec"}, ""},
			{params{"default_query_exec_mode": "exec"}, ""},
			{params{"default_query_exec_mode": "simple_protocol"}, ""},
		},
		dbtest.KindMySQL: {
			{params{}, "set collation_connection = utf8mb3_unicode_ci"},
			{params{"interpolateParams": "true"}, "set character_set_client = latin1"},
			{params{"clientFoundRows": "true"}, "set character_set_client = latin1"},
			{params{"multiStatements": "true"}, ""},
			{params{"parseTime": "true", "loc": "Europe/Berlin", "time_zone": "'+05:30'"}, ""},
			{params{"charset": "latin1"}, ""},
			{params{"charset": "latin1", "collation_connection": "utf8mb4_general_ci", "interpolateParams": "true"}, ""},
			{params{"collation": "utf8mb4_general_ci"}, ""},
			{params{"collation_connection": "utf8mb3_unicode_ci"}, ""},
			{params{"character_set_client": "latin1"}, ""},
			{params{"character_set_connection": "ascii", "interpolateParams": "true"}, ""},
			{params{"character_set_client": "gbk"}, ""}, // a character may be one and a half of the bytes
			{params{"character_set_client": "gbk", "interpolateParams": "true"}, ""},
			{params{"sql_mode": "'ANSI,STRICT_ALL_TABLES'"}, ""},
			{params{"sql_mode": "'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'", "interpolateParams": "true"}, ""},
			{params{"interpolateParams": "true", "clientFoundRows": "true", "multiStatements": "true", "columnsWithAlias": "true"}, ""},
		},
		dbtest.KindSQLite: {{params{}, ""}},
	} {
		t.Run(string(kind), func(t *testing.T) {
			for _, c := range all {
				var opts []dbtest.Setting
				for name, value := range c.params {
					opts = append(opts, dbtest.Param(name, value))
				}
				for mode, open := range map[string]func(*sql.DB, string, ...sqljournal.Option) *sqljournal.Journal{
					"transactional": sqljournal.Transactional, "intent": sqljournal.Intent,
				} {
					t.Run(fmt.Sprint(c.params, " ", c.during, " ", mode), func(t *testing.T) {
						t.Parallel()
						d := dbtest.New(t, kind)
						s := &scene{T: t, d: d, db: d.Open(t)}
						s.j = watched(open(d.Open(t, opts...), ours, d.Kind.Options()...))
						testSetting(s, cmp.Or(c.during, "select 1"), opts)
					})
				}
			}
		})
	}
}

// The namespaces of two services that share the table.
const ours, theirs = "näme 😀", "näme 🎉"

func testSetting(s *scene, during string, opts []dbtest.Setting) {
	record := []byte("é 😀 '\"\\?%_\n")
	for b := range 256 {
		record = append(record, byte(b))
	}
	in := func(namespace string, limit time.Duration) journal.Run {
		run := newRun(limit)
		run.Key = namespace + run.Key[strings.Index(run.Key, ":"):]
		return run
	}
	if err := s.j.Check(s.Context()); err != nil {
		s.Errorf("Check: %v", err)
	}
	s.begin(in(ours, time.Hour))
	s.x.record = record
	before := map[bool]journal.State{false: journal.Absent, true: journal.Begun}[s.run.Intent]
	e, err := s.j.FindEntry(s.Context(), s.run, true)
	mustBe(s, "the outcome before the commit", e, err, before, "")
	if s.run.Intent {
		for range 2 { // the same note again is no change
			mustFail(s, "Note", s.j.Note(s.ctx, record), nil)
		}
	}
	mustFail(s, "InTx", s.j.InTx(s.ctx, nil, func(tx *sql.Tx) error { return exec(tx, during) }), nil)
	e, err = s.j.FindEntry(s.Context(), s.run, true)
	mustBe(s, "the outcome", e, err, journal.Done, string(record))

	// Another connection sees the same, and another service nothing.
	plain := sqljournal.Intent(s.db, ours, s.d.Kind.Options()...)
	mustLook(s, plain, s.run.Key, journal.Done, string(record))
	mustLook(s, plain, strings.Replace(s.run.Key, ours, theirs, 1), journal.Absent, "")

	if s.d.Kind == dbtest.KindPostgreSQL {
		s.begin(in(ours, time.Hour))
		conn, err := pgx.Connect(s.Context(), s.d.URL(opts...))
		if err != nil {
			s.Fatal(err)
		}
		defer conn.Close(context.Background())
		err = s.j.Around(s.ctx, func(complete func(sqljournal.Execer) error) error {
			return pgx.BeginFunc(s.Context(), conn, func(tx pgx.Tx) error { return complete(sqljournal.Pgx(tx)) })
		})
		mustFail(s, "Around", err, nil)
		mustLook(s, s.j, s.run.Key, journal.Done, "response")
	}

	foreign := in(theirs, 0)
	begin(s, sqljournal.Intent(s.db, theirs, s.d.Kind.Options()...), foreign)
	swept := map[string]journal.Run{}
	for _, name := range []string{"done", "free", "forget"} {
		run := in(ours, 0)
		insertRow(s, s.d, s.db, run.Key, run.Token, 1, sqljournal.JoinNote(run.Note, record), nil, -time.Minute)
		swept[name] = run
	}
	scanned, err := s.j.Scan(s.Context())
	if len(scanned) != 3 || err != nil {
		s.Errorf("Scan: %d, %v", len(scanned), err)
	}
	i, err := s.j.Inspect(s.Context(), swept["forget"].Key)
	if err != nil || i.State != journal.Unfinished || string(i.Note) != string(record) {
		s.Errorf("Inspect: %+v, %v", i, err)
	}
	mustFail(s, "Forget", s.j.Forget(s.Context(), i.Key, i.Token, false), nil)
	mustLook(s, s.j, i.Key, journal.Absent, "")
	mustSweep(s, s.j, 2, func(ctx context.Context, u sqljournal.Unfinished) error {
		if string(u.Note) != string(record) {
			s.Errorf("handed out: %q, note %q", u.Key, u.Note)
		}
		if u.Key == swept["free"].Key {
			return u.Free(ctx, s.db)
		}
		return u.Done(ctx, s.db, time.Hour, record)
	})
	mustLook(s, s.j, swept["free"].Key, journal.Absent, "")
	e, err = plain.Look(s.Context(), swept["done"].Key)
	mustBe(s, "what Sweep has stored", e, err, journal.Done, string(record))
	if string(e.Note) != "fingerprint" {
		s.Errorf("its fingerprint is %q", e.Note)
	}
	mustExec(s, s.db, "update onceguard_journal set expires_at = "+s.d.Now()+" - "+s.d.Interval(time.Minute)+" where expires_at is not null")
	var done int64
	if err := s.db.QueryRow("select count(*) from onceguard_journal where state = 2").Scan(&done); err != nil {
		s.Fatal(err)
	}
	if n, err := s.j.Expire(s.Context()); n != done || err != nil {
		s.Errorf("Expire: %d, %v, want %d", n, err, done)
	}
}
