package sqljournal_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// These tests change the server that all tests share, so they are not parallel.

func TestCheckFindsAServerThatForgets(t *testing.T) {
	d := dbtest.PostgreSQL(t)
	db := d.Open(t)
	for _, setting := range []string{"fsync", "full_page_writes"} {
		set := func(statement, want string) {
			mustExec(t, db, statement)
			mustExec(t, db, "select pg_reload_conf()")
			eventually(t, setting+" "+want, func() bool {
				var got string
				if err := db.QueryRow("show " + setting).Scan(&got); err != nil {
					t.Fatal(err)
				}
				return got == want
			})
		}
		set("alter system set "+setting+" = off", "off")
		mustFail(t, setting+" off", check(t, d), sqljournal.ErrNotDurable)
		set("alter system reset "+setting, "on")
	}
}

func TestCheckFindsAStandby(t *testing.T) {
	d := dbtest.PostgreSQL(t)
	standby, err := pgconn.Connect(t.Context(), d.URL(dbtest.Param("replication", "yes")))
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close(context.Background())
	err = check(t, d)
	mustFail(t, "Check", err, sqljournal.ErrStandby)
	if err != nil && !strings.Contains(err.Error(), "1 connected") {
		t.Errorf("it does not say how many: %v", err)
	}
}
