package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/sqljournal"
)

const (
	patience = time.Minute // bounds every wait: only a failing test waits this long
	euros    = `{"amount":1250,"currency":"EUR"}`
	ann, bob = "ann", "bob"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "journal-server", Run: func(args []string, _ io.Reader, out io.Writer) error {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintln(out, listener.Addr())
		return run(context.Background(), listener, config{db: args[0], redis: args[1], opTimeout: patience})
	}})
}

// each runs a test on SQLite, and on PostgreSQL in a schema of its own, with a Redis and without.
func each(t *testing.T, test func(t *testing.T, db, redis string)) {
	t.Parallel()
	for _, redis := range []string{"", "none"} {
		t.Run("sqlite, redis "+redis, func(t *testing.T) {
			t.Parallel()
			test(t, "sqlite:"+filepath.Join(t.TempDir(), "payments.db"), redis)
		})
		t.Run("postgresql, redis "+redis, func(t *testing.T) {
			t.Parallel()
			server := os.Getenv("ONCEGUARD_POSTGRES")
			if server == "" {
				t.Skip("left out: needs the URL of a PostgreSQL server in ONCEGUARD_POSTGRES")
			}
			schema := "test_" + strings.ToLower(rand.Text())
			exec(t, server, "create schema "+schema)
			t.Cleanup(func() { exec(t, server, "drop schema "+schema+" cascade") })
			test(t, server+"?search_path="+schema, redis)
		})
	}
}

func exec(t *testing.T, source, statement string) {
	db, err := connect(source)
	if err == nil {
		_, err = db.Exec(statement)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bank is a provider that fails.
type bank struct {
	provider
	fault   atomic.Int32
	charged func() // is called after a charge
}

const works, silent, silentAfterCharge = 0, 1, 2

var errSilent = errors.New("the bank does not answer")

func (b *bank) charge(ctx context.Context, key string, o order) (string, error) {
	fault := b.fault.Load()
	if fault == silent {
		return "", errSilent
	}
	receipt, err := b.provider.charge(ctx, key, o)
	if fault == silentAfterCharge {
		return "", errSilent
	}
	if b.charged != nil {
		b.charged()
	}
	return receipt, err
}

func (b *bank) find(ctx context.Context, key string) (string, error) {
	if b.fault.Load() != works {
		return "", errSilent
	}
	return b.provider.find(ctx, key)
}

// site is a service behind a listener, without its background work.
type site struct {
	*service
	client
	bank *bank
}

// start starts a service, with a new Redis if redis is not none.
func start(t *testing.T, db, redis string) *site {
	t.Helper()
	if redis == "" {
		redis = "redis://" + redistest.Mini(t).Addr()
	}
	s, err := openService(t.Context(), config{db: db, redis: redis, opTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{provider: s.provider}
	s.provider = b
	server := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		server.Close()
		if err := s.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &site{s, client{t, server.URL}, b}
}

// elapse puts the end of the time limit of the one run that has not ended, and its lease, into the past.
func elapse(t *testing.T, db *database) {
	t.Helper()
	hour := map[sqljournal.Dialect]string{sqljournal.DialectPostgreSQL: "interval '1 hour'", sqljournal.DialectSQLite: "3600000"}[db.dialect]
	result, err := db.Exec("update onceguard_journal set until = until - " + hour + " where state = 1")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%d runs have not ended, %v; want 1", n, err)
	}
}

// sweep sweeps once when the time of the run is over.
func (s *site) sweep() error {
	elapse(s.t, s.db)
	_, err := s.chargesJournal.Sweep(context.Background(), sweepGrace, sweepLease, s.settle)
	return err
}

// client sends requests to a server.
type client struct {
	t   *testing.T
	url string
}

type response struct {
	status      int
	replayed    bool
	place, body string
}

func (c client) send(method, user, key, path, body string) (got response, err error) {
	r, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return got, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	if user != "" {
		r.SetBasicAuth(user, "")
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
	if err != nil {
		return got, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return response{res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", res.Header.Get("Location"), string(text)}, err
}

func (c client) want(got response, status int, replayed bool) response {
	c.t.Helper()
	if got.status != status || got.replayed != replayed {
		c.t.Errorf("got %d %s, replayed %v; want %d, %v", got.status, got.body, got.replayed, status, replayed)
	}
	return got
}

// post sends a POST, and checks its status and whether it is a replay.
func (c client) post(user, key, path, body string, status int, replayed bool) response {
	c.t.Helper()
	got, err := c.send("POST", user, key, path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.want(got, status, replayed)
}

// wantPaid checks that this is the user's one payment.
func (c client) wantPaid(user string, made response) {
	c.t.Helper()
	list, err := c.send("GET", user, "", "/payments", "")
	if want := "[" + strings.TrimSpace(made.body) + "]\n"; err != nil || list.body != want {
		c.t.Errorf("%s's list: got %q, %v; want %q", user, list.body, err, want)
	}
	if one, err := c.send("GET", user, "", made.place, ""); err != nil || one.body != made.body {
		c.t.Errorf("%s: got %q, %v; want %q", made.place, one.body, err, made.body)
	}
}

// fault: FLUSHALL, here a restart of the embedded Redis. Nothing is paid twice.
func TestPayments(t *testing.T) {
	each(t, func(t *testing.T, db, redis string) {
		s := start(t, db, redis)
		s.post("", "k1", "/payments", euros, 401, false)
		s.post(ann, "", "/payments", euros, 400, false)
		s.post(ann, "k1", "/payments", `amount=1`, 400, false)
		s.post(ann, "k1", "/payments", `{"amount":0,"currency":"EUR"}`, 422, false) // and the key is free
		first := s.post(ann, "k1", "/payments", euros, 201, false)
		again := s.post(ann, "k1", "/payments", euros, 201, true)
		if again.body != first.body || again.place != first.place {
			t.Errorf("got %+v, then %+v", first, again)
		}
		s.post(ann, "k1", "/payments", `{"amount":1,"currency":"EUR"}`, 422, false)
		s.wantPaid(bob, s.post(bob, "k1", "/payments", euros, 201, false))
		if other, err := s.send("GET", bob, "", first.place, ""); err != nil || other.status != 404 {
			t.Errorf("another user's payment: %+v, %v", other, err)
		}
		s = start(t, db, redis)
		s.post(ann, "k1", "/payments", euros, 201, true)
		s.wantPaid(ann, first)
	})
}

func TestCharges(t *testing.T) {
	each(t, func(t *testing.T, db, redis string) {
		s := start(t, db, redis)
		made := s.post(ann, "k1", "/charges", euros, 201, false)
		s.post(ann, "k1", "/charges", euros, 201, true)
		s.wantPaid(ann, made)
		tooMuch := fmt.Sprintf(`{"amount":%d,"currency":"EUR"}`, cardLimit+1)
		s.post(bob, "k1", "/charges", tooMuch, 402, false)
		s.post(bob, "k1", "/charges", tooMuch, 402, true)
	})
}

// fault: the provider does not answer: it has charged, or has not. Nor does it answer the first sweep.
func TestProviderSilent(t *testing.T) {
	each(t, func(t *testing.T, db, redis string) {
		for _, fault := range []int32{silent, silentAfterCharge} {
			s := start(t, db, redis)
			user := fmt.Sprint("user", fault)
			s.bank.fault.Store(fault)
			s.post(user, "k1", "/charges", euros, 503, false)
			if err := s.sweep(); err == nil {
				t.Error("a sweep without an answer: want an error")
			}
			s = start(t, db, redis) // with another Redis
			unknown := s.post(user, "k1", "/charges", euros, 409, false)
			if !strings.Contains(unknown.body, "outcome-unknown") {
				t.Errorf("got %s, want outcome-unknown", unknown.body)
			}
			if err := s.sweep(); err != nil {
				t.Error(err)
			}
			s = start(t, db, redis)
			made := s.post(user, "k1", "/charges", euros, 201, fault == silentAfterCharge)
			if id := strings.TrimPrefix(made.place, "/payments/"); !strings.Contains(unknown.body, "urn:onceguard:key:"+id) {
				t.Errorf("the charge is at %s, and the problem was %s", made.place, unknown.body)
			}
			s.wantPaid(user, made)
		}
	})
}

// fault: the sweep has settled the run, whose handler comes late to its transaction.
func TestLateHandler(t *testing.T) {
	each(t, func(t *testing.T, db, redis string) {
		s := start(t, db, redis)
		s.bank.charged = func() {
			if err := s.sweep(); err != nil {
				t.Error(err)
			}
		}
		s.wantPaid(ann, s.post(ann, "k1", "/charges", euros, 201, true))
	})
}

// fault: kill -9 when the provider has charged and the charge is not written. The program starts again and sweeps, and the
// client repeats its request until it gets its 201.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, source, redis string) {
		process := redistest.Run(t, "journal-server", source, redis)
		c := client{t, "http://" + process.Line(t)}
		if _, err := c.send("GET", "", "", "/healthz", ""); err != nil { // it has its tables
			t.Fatal(err)
		}
		db, err := connect(source)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		answer := make(chan error, 1)
		go func() {
			_, err := c.send("POST", ann, "k1", "/charges?delay=10s", euros)
			answer <- err
		}()
		for n := 0; n == 0; { // until go test's own timeout
			if err := db.QueryRow("select count(*) from provider_charges").Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		process.Kill(t)
		if err := <-answer; err == nil {
			t.Error("the program has answered")
		}
		elapse(t, db)
		c.url = "http://" + redistest.Run(t, "journal-server", source, redis).Line(t)
		made := response{status: 409}
		for made.status == 409 { // until the first sweep, at the start
			if made, err = c.send("POST", ann, "k1", "/charges?delay=10s", euros); err != nil {
				t.Fatal(err)
			}
		}
		c.wantPaid(ann, c.want(made, 201, true))
	})
}
