package sqljournal_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A server refuses writes from an instant in the middle of a run on, as one that is no longer the primary, until it accepts them
// again. Expected: an error, or of a COMMIT that it is not known, and one effect in the end, by a retry.
//
// fault: MySQL: read_only or super_read_only is set before a statement of the handler, before the record and before COMMIT
func TestServerBecomesReadOnly(t *testing.T) {
	t.Parallel()
	d := dbtest.Own(t, dbtest.KindMySQL)
	root := withEffects(t, d)
	set := func(value string) {
		mustExec(t, root, "set global read_only = "+value)
		if !d.Server().IsMariaDB() {
			mustExec(t, root, "set global super_read_only = "+value)
		}
	}
	mustExec(t, root, "create user plain@'%' identified by ''")
	mustExec(t, root, "grant all on "+d.Name()+".* to plain@'%'")
	for mode, open := range map[string]func(*sql.DB, string, ...sqljournal.Option) *sqljournal.Journal{
		"transactional": sqljournal.Transactional, "intent": sqljournal.Intent,
	} {
		for _, instant := range []string{"in the handler", "before the record", "before COMMIT"} {
			t.Run(mode+", "+instant, func(t *testing.T) {
				proxy := dbtest.NewProxy(t, d.Server())
				db, err := sql.Open("mysql", strings.Replace(d.URL(dbtest.Through(proxy)), "root@", "plain@", 1))
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				j := open(db, namespace, sqljournal.MySQL())
				sqljournal.SetProbeTime(j, 100*time.Millisecond)
				run := begin(t, j, newRun(time.Hour))
				x, ctx := protected(j, run, "response")
				held := map[string]*dbtest.Rule{}
				switch instant {
				case "before the record":
					held[instant] = proxy.HoldRequest(completes(mode))
				case "before COMMIT":
					held[instant] = proxy.HoldRequest(dbtest.Statement("commit"))
				}
				ended := make(chan error, 1)
				go func() {
					ended <- j.InTx(ctx, nil, func(tx *sql.Tx) error {
						if instant == "in the handler" {
							set("on")
						}
						return take(tx, run)
					})
				}()
				if rule := held[instant]; rule != nil {
					rule.Wait(t)
					set("on")
					rule.Lift()
				}
				err = <-ended
				if err == nil || (instant == "before COMMIT") != (err == journal.ErrAnswered) || x.unknown != (err == journal.ErrAnswered) {
					t.Errorf("InTx: %v; unknown: %v", err, x.unknown)
				}
				if e, err := j.Begin(context.Background(), retried(run)); mode == "intent" && e.State != journal.Running {
					t.Errorf("a retry on the server that only reads gets %v, %v", e.State, err)
				}
				set("off")
				mustStand(t, j, root, run)
				if mode == "transactional" {
					again := begin(t, j, retried(run))
					_, ctx := protected(j, again, "response")
					if err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err != nil {
						t.Errorf("InTx of the retry: %v", err)
					}
					mustHaveEffects(t, root, run, 1)
				}
			})
		}
	}
}
