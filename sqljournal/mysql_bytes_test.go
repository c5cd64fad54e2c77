package sqljournal_test

import (
	"cmp"
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// The server converts a parameter that is a string from character_set_client to character_set_connection, and the driver sends
// bytes as a string. Expected: each byte of a key, a note and a record comes back, whatever these variables are, also if the
// handler changes one in its transaction.
//
// fault: MySQL: character_set_client is not character_set_connection, at the start or set by the handler
func TestBytesAreNotConverted(t *testing.T) {
	t.Parallel()
	record := []byte("é 😀 '\"\\?%_")
	for b := range 256 {
		record = append(record, byte(b))
	}
	for setting, params := range map[string]map[string]string{
		"none":                      {},
		"collation_connection":      {"collation_connection": "utf8mb3_unicode_ci"},
		"character_set_client":      {"character_set_client": "latin1"},
		"character_set_connection":  {"character_set_connection": "ascii"},
		"charset":                   {"charset": "latin1", "collation_connection": "utf8mb4_general_ci"},
		"gbk, a character in bytes": {"character_set_client": "gbk"},
	} {
		for _, interpolate := range []string{"false", "true"} {
			t.Run(setting+", interpolateParams="+interpolate, func(t *testing.T) {
				t.Parallel()
				opts := []dbtest.Setting{dbtest.Param("interpolateParams", interpolate)}
				for name, value := range params {
					opts = append(opts, dbtest.Param(name, value))
				}
				d := dbtest.MySQL(t)
				for mode, open := range map[string]func(*sql.DB, string, ...sqljournal.Option) *sqljournal.Journal{
					"transactional": sqljournal.Transactional, "intent": sqljournal.Intent,
				} {
					for _, during := range []string{"", "set collation_connection = utf8mb3_unicode_ci", "set character_set_client = latin1"} {
						t.Run(mode+" "+during, func(t *testing.T) { testBytes(t, open, d, d.Open(t, opts...), during, record) })
					}
				}
			})
		}
	}
}

func testBytes(
	t *testing.T, open func(*sql.DB, string, ...sqljournal.Option) *sqljournal.Journal, d dbtest.Database, db *sql.DB, during string, record []byte,
) {
	mustExec(t, db, "delete from onceguard_journal")
	const ours = "näme 😀"
	inNamespace := func(name string) journal.Run {
		run := newRun(time.Hour)
		run.Key = name + strings.TrimPrefix(run.Key, namespace)
		return run
	}
	j, other := open(db, ours, sqljournal.MySQL()), open(d.Open(t), "näme 🎉", sqljournal.MySQL())
	if err := j.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	run := begin(t, j, inNamespace(ours))
	_, ctx := protected(j, run, string(record))
	if run.Intent {
		if err := j.Note(ctx, record); err != nil {
			t.Errorf("Note: %v", err)
		}
	}
	err := j.InTx(ctx, nil, func(tx *sql.Tx) error {
		_, err := tx.Exec(cmp.Or(during, "do 0"))
		return err
	})
	if err != nil {
		t.Errorf("InTx: %v", err)
	}
	mustLook(t, j, run.Key, journal.Done, string(record))
	plain := open(d.Open(t), ours, sqljournal.MySQL())
	mustLook(t, plain, run.Key, journal.Done, string(record))
	mustLook(t, other, strings.Replace(run.Key, "😀", "🎉", 1), journal.Absent, "")
	if !run.Intent {
		return
	}
	swept, foreign := inNamespace(ours), inNamespace("näme 🎉")
	swept.Limit, foreign.Limit = 0, 0
	_, ctx = protected(j, begin(t, j, swept), "")
	if err := j.Note(ctx, record); err != nil {
		t.Errorf("Note: %v", err)
	}
	begin(t, other, foreign)
	n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
		if u.Key != swept.Key || string(u.Note) != string(record) {
			t.Errorf("handed out: %q, note %q", u.Key, u.Note)
		}
		return u.Done(ctx, db, time.Hour, record)
	})
	if n != 1 || err != nil {
		t.Errorf("Sweep: %d, %v", n, err)
	}
	e, err := plain.Look(t.Context(), swept.Key)
	mustBe(t, "what Sweep has stored", e, err, journal.Done, string(record))
	if string(e.Note) != "fingerprint" {
		t.Errorf("its fingerprint is %q", e.Note)
	}
	mustExec(t, d.Open(t), "update onceguard_journal set expires_at = 1 where expires_at is not null")
	if n, err := j.Expire(t.Context()); n != 2 || err != nil {
		t.Errorf("Expire: %d, %v", n, err)
	}
}
