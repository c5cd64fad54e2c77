package sqljournal_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// namespaces are such that a comparison by a pattern, without the separator, or without the case would mix them up.
var namespaces = []string{"shop", "shop2", "shop:eu", "Shop", "a_b", "axb", "a%", "a", "é", "e\u0301", `a\b`, "z:"}

// Sweep and Expire reach exactly the rows of their own namespace, however the database compares texts.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		if d.Kind != dbtest.KindPostgreSQL {
			testNamespaces(t, d, "")
			return
		}
		for name, collation := range map[string]string{
			"C": "", "default": `"default"`, "ICU": `"en-x-icu"`, "ICU, any case": "any_case",
		} {
			t.Run(name, func(t *testing.T) {
				d := dbtest.PostgreSQL(t)
				mustExec(t, d.Open(t), "create collation any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
				testNamespaces(t, d, collation)
			})
		}
	})
}

func testNamespaces(t *testing.T, d dbtest.Database, collation string) {
	db := d.Open(t)
	if collation != "" {
		mustExec(t, db, "alter table onceguard_journal alter column key type text collate "+collation)
	}
	unfinished := map[string][]string{}
	for i, namespace := range namespaces {
		for n := range i + 1 {
			run := newRun(time.Hour)
			run.Key = namespace + strings.TrimPrefix(run.Key, "payments-api")
			unfinished[namespace] = append(unfinished[namespace], run.Key)
			insertRow(t, d, db, run.Key, run.Token, 1, sqljournal.JoinNote(nil, nil), nil, -time.Hour+time.Duration(n)*time.Second)
			insertRow(t, d, db, run.Key+"old", run.Token, 2, nil, []byte("old"), -time.Minute)
		}
	}
	for i, namespace := range namespaces {
		j := sqljournal.Intent(db, namespace, d.Kind.Options()...)
		if err := j.Check(t.Context()); err != nil {
			t.Errorf("%q: Check: %v", namespace, err)
		}
		var got []string
		n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
			got = append(got, u.Key)
			return u.Free(ctx, db)
		})
		if n != i+1 || err != nil || !slices.Equal(got, unfinished[namespace]) {
			t.Errorf("%q: Sweep: %d, %v, %q; want %q", namespace, n, err, got, unfinished[namespace])
		}
		if n, err := j.Expire(t.Context()); n != int64(i+1) || err != nil {
			t.Errorf("%q: Expire: %d, %v; want %d", namespace, n, err, i+1)
		}
	}
	mustCount(t, db, 0, "onceguard_journal")
}
