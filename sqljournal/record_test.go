package sqljournal_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A run died after its effect. The sweep finds the order, and its customer gets the response: from the journal, from
// Redis, and not with another body.
func TestSweepAnswersTheCustomer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for name, opts := range map[string][]middleware.Option{
			"plain": nil, "encrypted": {middleware.WithEncryption(make([]byte, 32))},
		} {
			t.Run(name, func(t *testing.T) { testSweepAnswers(t, d, opts) })
		}
	})
}

func testSweepAnswers(t *testing.T, d dbtest.Database, opts []middleware.Option) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker := lock.New(client, namespace, lock.WithOpTimeout(30*time.Second))
	defer func() { _ = locker.Close(context.Background()); _ = client.Close() }()
	db, storageKey, runs := d.Open(t), "", 0
	j := sqljournal.Intent(db, namespace, d.Options()...)
	m := middleware.New(locker, keyfunc.Standard(keyfunc.Anonymous()), append(opts, middleware.WithJournal(j))...)
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := middleware.FromContext(r.Context())
		runs, storageKey = runs+1, run.Key()
		run.Unknown() // as if its process died
		w.WriteHeader(http.StatusBadGateway)
	}))
	ask := func(order string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(order))
		r.Header.Set("Idempotency-Key", strings.ReplaceAll(t.Name(), "/", "-"))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	ask("7")
	expireLimit(t, d, db, journal.Run{Key: storageKey})
	server.FlushAll() // the lease of the dead run
	w := ask("7")
	if w.Code != http.StatusConflict || w.Header().Get("X-Should-Retry") != "true" || w.Header().Get("Retry-After") == "" {
		t.Errorf("before the sweep: %d %v, want a 409 that may be retried", w.Code, w.Header())
	}
	n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
		header := http.Header{"Content-Type": {"text/plain"}, "Location": {"/orders/7"}}
		record, err := m.Record(u.Key, middleware.Responded(http.StatusCreated, header, []byte("paid")))
		if err != nil {
			return err
		}
		return u.Done(ctx, db, time.Hour, record)
	})
	if n != 1 || err != nil {
		t.Fatalf("Sweep: %d, %v", n, err)
	}
	for _, from := range []string{"the journal", "Redis", "the journal again"} {
		eventually(t, "the release of an earlier claim", func() bool {
			w = ask("7")
			return !strings.Contains(w.Body.String(), "in-flight")
		})
		if w.Code != http.StatusCreated || w.Body.String() != "paid" || w.Header().Get("Location") != "/orders/7" {
			t.Errorf("from %s: %d %v %s", from, w.Code, w.Header(), w.Body)
		}
		if w = ask("8"); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("another order, from %s: %d %s", from, w.Code, w.Body)
		}
		if from == "Redis" {
			server.FlushAll()
		}
	}
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

// A sweep has found the response out while the run was late. The run then stores that one in Redis, where it also is no
// other order's.
func TestLateRunStoresWhatTheSweepFound(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker := lock.New(client, namespace, lock.WithOpTimeout(30*time.Second))
	defer func() { _ = locker.Close(context.Background()); _ = client.Close() }()
	db := d.Open(t)
	j := sqljournal.Intent(db, namespace, d.Options()...)
	m := middleware.New(locker, keyfunc.Standard(keyfunc.Anonymous()), middleware.WithJournal(j))
	var handedOut sqljournal.Unfinished
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expireLimit(t, d, db, journal.Run{Key: middleware.FromContext(r.Context()).Key()})
		_, err := j.Sweep(r.Context(), 0, time.Hour, func(_ context.Context, u sqljournal.Unfinished) error {
			handedOut = u
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte("late"))
	}))
	ask := func(order string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(order))
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	ask("7")
	record, err := m.Record(handedOut.Key, middleware.Responded(http.StatusCreated, nil, []byte("found out")))
	if err == nil {
		err = handedOut.Done(t.Context(), db, time.Hour, record)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the late End", func() bool {
		info, err := locker.Inspect(t.Context(), handedOut.Key)
		return err == nil && info.State == lock.Settled
	})
	if w := ask("8"); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("another order: %d %s", w.Code, w.Body)
	}
	if w := ask("7"); w.Code != http.StatusCreated || w.Body.String() != "found out" {
		t.Errorf("the order: %d %s", w.Code, w.Body)
	}
}

// The same for a function: its later callers get the value.
func TestSweepAnswersTheCaller(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	db := d.Open(t)
	j := sqljournal.Intent(db, namespace, d.Options()...)
	locker := lock.None(namespace)
	defer func() { _ = locker.Close(context.Background()) }()
	guard := once.New(locker, once.WithJournal(j))
	call := func(f func(context.Context) (string, error), input string) (string, bool, error) {
		return once.Do(t.Context(), guard, once.Key{Operation: "pay", Scope: once.Anyone, ID: "1", Input: input}, f)
	}
	storageKey := ""
	_, _, _ = call(func(ctx context.Context) (string, error) {
		storageKey = once.FromContext(ctx).Key()
		return "", once.Unknown(context.DeadlineExceeded)
	}, "7")
	expireLimit(t, d, db, journal.Run{Key: storageKey})
	never := func(context.Context) (string, error) { t.Error("it ran again"); return "", nil }
	_, _, err := call(never, "7")
	mustBeRefused(t, err, once.ErrOutcomeUnknown, true)
	_, err = j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
		record, err := guard.Record(u.Key, "paid", nil)
		if err != nil {
			return err
		}
		return u.Done(ctx, db, time.Hour, record)
	})
	if err != nil {
		t.Fatal(err)
	}
	if v, replayed, err := call(never, "7"); v != "paid" || !replayed || err != nil {
		t.Errorf("got %q, %v, %v", v, replayed, err)
	}
	_, _, err = call(never, "8")
	mustBeRefused(t, err, once.ErrReused, false)
}

// A row whose note is damaged does not tell whose request it is, so nobody gets the response that a sweep stores in it.
func TestSweptRowWithADamagedNote(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for _, note := range []string{"null", "''", "'z'"} {
			db := d.Open(t)
			j := sqljournal.Intent(db, namespace, d.Options()...)
			locker := lock.None(namespace)
			defer func() { _ = locker.Close(context.Background()) }()
			guard := once.New(locker, once.WithJournal(j))
			call := func(input string) error {
				key := once.Key{Operation: "pay", Scope: once.Anyone, ID: note, Input: input}
				_, _, err := once.Do(t.Context(), guard, key, func(ctx context.Context) (string, error) {
					expireLimit(t, d, db, journal.Run{Key: once.FromContext(ctx).Key()})
					mustExec(t, db, "update onceguard_journal set note = "+note+" where state = 1")
					return "", once.Unknown(context.DeadlineExceeded)
				})
				return err
			}
			_ = call("7")
			n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
				record, err := guard.Record(u.Key, "paid", nil)
				if err != nil {
					return err
				}
				return u.Done(ctx, db, time.Hour, record)
			})
			if n != 1 || err == nil {
				t.Errorf("Sweep: %d, %v, want one row, and that its note is damaged", n, err)
			}
			mustBeRefused(t, call("8"), once.ErrUnreadable, false)
		}
	})
}

// A row that is done without a record still tells another request from the run's.
func TestSweptRowIsCompared(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	db := d.Open(t)
	j := sqljournal.Intent(db, namespace, d.Options()...)
	locker := lock.None(namespace)
	defer func() { _ = locker.Close(context.Background()) }()
	guard := once.New(locker, once.WithJournal(j))
	call := func(input string) error {
		key := once.Key{Operation: "pay", Scope: once.Anyone, ID: "1", Input: input}
		_, _, err := once.Do(t.Context(), guard, key, func(ctx context.Context) (string, error) {
			expireLimit(t, d, db, journal.Run{Key: once.FromContext(ctx).Key()})
			return "", once.Unknown(context.DeadlineExceeded)
		})
		return err
	}
	_ = call("7")
	n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
		return u.Done(ctx, db, time.Hour, nil)
	})
	if n != 1 || err != nil {
		t.Fatalf("Sweep: %d, %v", n, err)
	}
	mustBeRefused(t, call("7"), once.ErrNotStored, false)
	mustBeRefused(t, call("8"), once.ErrReused, false)
}
