package sqljournal_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// Two services may share a table. The sweep of one, which knows nothing of the other's orders, does not get its rows.
//
// fault: a run of service A has no outcome, although its effect is there, and service B sweeps first. Expected: B gets no
// row, A's own sweep settles the run, and a retry does not run again.
func TestServicesShareATable(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db := d.Open(t)
		a := sqljournal.Intent(db, "a", d.Options()...)
		b := sqljournal.Intent(db, "b", d.Options()...)
		server := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		locker := lock.New(client, "a", lock.WithOpTimeout(30*time.Second))
		defer locker.Close(context.Background())
		charges := 0
		h := middleware.Idempotency(locker, keyfunc.Header("Idempotency-Key"), middleware.WithJournal(a))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			charges++
			middleware.FromContext(r.Context()).Unknown() // the provider was charged, and its reply was lost
		}))
		post := func() int {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		post()
		server.FlushAll()
		expireLimit(t, d, db, journal.Run{Key: locker.StorageKey("k1")})

		n, err := b.Sweep(t.Context(), 0, time.Minute, func(ctx context.Context, u sqljournal.Unfinished) error {
			return u.Free(ctx, db) // B has no such order
		})
		if n != 0 || err != nil {
			t.Errorf("B sweeps %d rows, %v; want none", n, err)
		}
		n, err = a.Sweep(t.Context(), 0, time.Minute, func(ctx context.Context, u sqljournal.Unfinished) error {
			return u.Done(ctx, db, time.Hour, nil)
		})
		if n != 1 || err != nil {
			t.Errorf("A sweeps %d rows, %v; want its own", n, err)
		}
		if status := post(); status != http.StatusConflict || charges != 1 {
			t.Errorf("the retry got %d, %d charges; want 409 and one charge", status, charges)
		}
	})
}

// namespaces are such that a comparison by a pattern, without the separator, or without the case would mix them up.
var namespaces = []string{"shop", "shop2", "shop:eu", "Shop", "a_b", "axb", "a%", "a", "é", "e\u0301", `a\b`, "z:"}

// Sweep and Expire reach exactly the rows of their own namespace, however the database compares texts.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		if d.Kind() != dbtest.KindPostgreSQL {
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
	escaped := `\` // how a backslash stands in a text
	if d.Kind() == dbtest.KindMySQL {
		escaped = `\\`
	}
	unfinished, expired := map[string][]string{}, map[string][]string{}
	for i, namespace := range namespaces {
		for n := range i + 1 {
			run := newRun(time.Hour)
			run.Key = namespace + strings.TrimPrefix(run.Key, "payments-api")
			unfinished[namespace] = append(unfinished[namespace], run.Key)
			insertRow(t, d, db, run.Key, run.Token, 1, sqljournal.JoinNote(nil, nil), nil, -time.Hour+time.Duration(n)*time.Second)
			old := run.Key + "old"
			expired[namespace] = append(expired[namespace], old)
			insertRow(t, d, db, old, run.Token, 2, nil, []byte("old"), -time.Minute)
		}
	}
	for i, namespace := range namespaces {
		j := sqljournal.Intent(db, namespace, d.Options()...)
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
		for _, key := range slices.Concat(unfinished[namespace], expired[namespace]) {
			var left int
			if err := db.QueryRow("select count(*) from onceguard_journal where onceguard_journal.key = '" + strings.ReplaceAll(key, `\`, escaped) + "'").Scan(&left); err != nil || left != 0 {
				t.Errorf("%q is left: %d, %v", key, left, err)
			}
		}
	}
	var left int
	if err := db.QueryRow("select count(*) from onceguard_journal").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}
