package sqljournal_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// downgrade makes the table that of version 1.
func downgrade(t *testing.T, db *sql.DB) {
	t.Helper()
	mustExec(t, db, "alter table onceguard_journal drop column run")
	mustExec(t, db, "alter table onceguard_journal drop column fingerprint")
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		if d.Kind == dbtest.KindMySQL {
			t.Skip("its table has no version 1")
		}
		db, j := d.Open(t), modes["intent"](d, t)
		downgrade(t, db)
		mustFail(t, "Check of version 1", j.Check(t.Context()), sqljournal.ErrOldSchema)
		mustFail(t, "Check of version 1", j.Check(t.Context()), sqljournal.ErrTable)
		mustExec(t, db, sqljournal.Upgrade(sqljournal.Dialect(d.Kind)))
		if err := j.Check(t.Context()); err != nil {
			t.Errorf("Check after the upgrade: %v", err)
		}
	})
}

// The statements of the release before on PostgreSQL, which its instances send during a rollout.
const (
	v1Begin = `
insert into onceguard_journal as j (key, token, state, note, until)
values ($1::text, $2::text::uuid, 1, $3::bytea, statement_timestamp() + interval '1 hour')
on conflict (key) do update set token = excluded.token, state = 1, note = excluded.note, record = null,
  began_at = excluded.began_at, until = excluded.until, expires_at = null, attempts = 0
where j.expires_at <= statement_timestamp()`
	v1Finish = `
update onceguard_journal set state = 2, record = $3::bytea, note = null, until = null,
  expires_at = statement_timestamp() + $4::bigint * interval '1 microsecond'
where key = $1::text and token = $2::text::uuid and state <> 2`
	v1Sweep = `
update onceguard_journal set token = $2::text::uuid, attempts = attempts + 1,
  until = statement_timestamp() + interval '1 hour'
where key = $1::text and state = 1 and until < statement_timestamp()`
)

// v1 is an instance of the release before.
type v1 struct {
	t  *testing.T
	db *sql.DB
}

func (o v1) exec(want int64, statement string, args ...any) {
	o.t.Helper()
	result, err := o.db.Exec(statement, args...)
	if err != nil {
		o.t.Fatal(err)
	}
	if n, _ := result.RowsAffected(); n != want {
		o.t.Errorf("%d rows, want %d: %s", n, want, statement)
	}
}

func (o v1) begin(run journal.Run) {
	o.t.Helper()
	o.exec(1, v1Begin, run.Key, run.Token, sqljournal.JoinNote(run.Note, nil))
}

// Instances of both releases work on the upgraded table, on each other's rows.
func TestInstancesOfTheReleaseBefore(t *testing.T) {
	t.Parallel()
	d := dbtest.PostgreSQL(t)
	db := d.Open(t)
	old, j := v1{t, db}, modes["intent"](d, t)
	downgrade(t, db)
	begun := newRun(time.Hour)
	old.begin(begun)
	mustExec(t, db, sqljournal.Upgrade(sqljournal.DialectPostgreSQL))

	// The old instance's row is swept by this release.
	mustLook(t, j, begun.Key, journal.Running, "")
	expireLimit(t, d, db, begun)
	mustSweep(t, j, 1, func(_ context.Context, u sqljournal.Unfinished) error {
		old.exec(0, v1Finish, begun.Key, begun.Token, []byte("late"), 1)
		return u.Done(t.Context(), db, time.Hour, []byte("found out"))
	})
	mustLook(t, j, begun.Key, journal.Done, "found out")

	// This release's row is swept by the old instance. Its late response comes too late.
	run := begin(t, j, newRun(time.Hour))
	expireLimit(t, d, db, run)
	token := uuid.NewString()
	old.exec(1, v1Sweep, run.Key, token)
	mustLook(t, j, run.Key, journal.Unfinished, "")
	old.exec(1, v1Finish, run.Key, token, nil, time.Hour.Microseconds())
	e, err := j.End(t.Context(), run, []byte("late"), time.Hour)
	mustBe(t, "End", e, err, journal.Done, "")

	// The old instance begins a run where an expired row has the columns of an earlier one, sweeps that run, and finds that it took
	// effect. The fingerprint of the earlier run is not taken for its own: a retry would be told that its key is another request's.
	swept := newRun(time.Hour)
	swept.Key = run.Key
	mustExec(t, db, "update onceguard_journal set expires_at = now() - interval '1 second', run = gen_random_uuid(), fingerprint = 'stale'")
	old.begin(swept)
	if e, err := j.Look(t.Context(), swept.Key); err != nil || e.State != journal.Running || e.Token != swept.Token || string(e.Note) != "fingerprint" {
		t.Errorf("%+v, %v, want the new run", e, err)
	}
	expireLimit(t, d, db, swept)
	token = uuid.NewString()
	old.exec(1, v1Sweep, swept.Key, token)
	old.exec(1, v1Finish, swept.Key, token, nil, time.Hour.Microseconds())
	e, err = j.Look(t.Context(), swept.Key)
	mustBe(t, "Look", e, err, journal.Done, "")
	if e.Note != nil {
		t.Errorf("the note is %q, want none", e.Note)
	}
}
