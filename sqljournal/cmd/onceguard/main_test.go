package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/operate"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The exit codes, as the manual has them.
const (
	done    = 0
	failed  = 1
	usage   = 2
	free    = 3
	refused = 4
)

// shop is a protected handler with an intent journal. Its keys are in the namespace "shop".
type shop struct {
	t       *testing.T
	redis   *miniredis.Miniredis
	url     string // of the journal's database
	journal *sqljournal.Journal
	locker  *lock.Locker
	handler http.Handler
	works   bool // or else no run knows its outcome
	runs    int
}

func each(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		s := &shop{t: t, redis: miniredis.RunT(t), url: "sqlite:" + d.Name()}
		if d.Server() != nil {
			s.url = d.URL()
		}
		if d.Kind() == dbtest.KindMySQL {
			s.url = "mysql://root@" + d.Server().Addr() + "/" + d.Name()
		}
		client := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
		s.locker = lock.New(client, "shop", lock.WithOpTimeout(20*time.Second))
		t.Cleanup(func() {
			if err := s.locker.Close(context.Background()); err != nil {
				t.Error(err)
			}
			client.Close()
		})
		s.journal = sqljournal.Intent(d.Open(t), "shop", d.Options()...)
		s.handler = middleware.Idempotency(s.locker, keyfunc.Standard(keyfunc.BasicUser()),
			middleware.WithJournal(s.journal), middleware.WithMaxDuration(time.Minute))(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.runs++
				if !s.works {
					if err := s.journal.Note(r.Context(), []byte("order 7\x1b[2J")); err != nil {
						t.Error(err)
					}
					middleware.FromContext(r.Context()).Unknown()
				}
				w.WriteHeader(http.StatusCreated)
			}))
		test(t, s)
	})
}

func (s *shop) post(key string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("pay"))
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// strand posts a payment whose outcome is unknown, lets its limit pass and Redis forget it, and returns its storage key.
func (s *shop) strand(key string) string {
	s.t.Helper()
	s.works = false
	s.post(key)
	s.works = true
	s.redis.FastForward(time.Minute)
	storageKey := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", key))
	s.exec(`update onceguard_journal set until = began_at where onceguard_journal.key = '` + storageKey + `'`)
	return storageKey
}

func (s *shop) exec(statement string) {
	s.t.Helper()
	db, _, err := openDatabase(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(s.t.Context(), statement); err != nil {
		s.t.Fatal(err)
	}
}

// result is what a command has left.
type result struct {
	t              *testing.T
	code           int
	stdout, stderr string
}

// run runs a command on the shop's Redis and journal.
func (s *shop) run(args ...string) result {
	s.t.Helper()
	return onceguard(s.t, map[string]string{"REDIS_URL": "redis://" + s.redis.Addr(), "JOURNAL_URL": s.url}, args...)
}

func onceguard(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := operate.Run(t.Context(), args, operate.Environment{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, User: "ops", OpenJournal: openJournal,
		Getenv: func(name string) string { return env[name] },
	})
	return result{t, code, stdout.String(), stderr.String()}
}

// want checks the exit code, and that the output has each of the texts.
func (r result) want(code int, texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			r.t.Errorf("no %q in\nstdout: %s\nstderr: %s", text, r.stdout, r.stderr)
		}
	}
	if r.code != code {
		r.t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
}

func (s *shop) token(key string) string {
	s.t.Helper()
	r := s.run("inspect", "-json", key)
	var facts struct{ Token string }
	if err := json.Unmarshal([]byte(r.stdout), &facts); err != nil {
		s.t.Fatalf("%v: %+v", err, r)
	}
	return facts.Token
}

// fault: a process dies after the charge, and its claim expires. Expected: the row shows, a retry does not run, and an
// operator settles it.
func TestARunThatOnlyTheJournalKnows(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		s.run("inspect", key).want(done, "state    abandoned: a request ended without an outcome; retries get 409 outcome-unknown",
			"redis    free", "journal  unfinished: its limit was ", "began    20", `note     order 7\u001b[2J`)
		s.run("inspect", "-namespace=shop", "-user=ann", "-path=/payments", "-key=k1", "-json").
			want(done, `"state":"abandoned"`, `"redis":"free","journal":{"state":"unfinished","began_at":"20`)
		s.run("scan", "-namespace", "shop").want(done, "abandoned  "+key, "found 0 held and 1 abandoned keys, and 0 that are done")
		if w := s.post("k1"); w.Code != http.StatusConflict || s.runs != 1 {
			t.Fatalf("%d %s, %d runs", w.Code, w.Body, s.runs)
		}
		token := s.token(key)
		s.run("resolve", "-token", "01234567-89ab-4def-8123-456789abcdef", "-reason", "r", "-status", "202", key).want(refused)
		s.redis.FastForward(time.Minute) // the claim of the retry
		s.run("resolve", "-token", token, "-reason", "ticket 7: booked", "-status", "202", key).
			want(done, "resolved: it was abandoned; every retry gets 202 for 24h0m0s", "msg=resolve", "before=abandoned")
		s.run("inspect", key).want(done, "state    settled: retries get the stored response", "run      of an HTTP request", "stored   status 202", "journal  done; ends in 2")
		if w := s.post("k1"); w.Code != http.StatusAccepted || s.runs != 1 {
			t.Errorf("%d %s, %d runs", w.Code, w.Body, s.runs)
		}
		s.run("scan", "-namespace", "shop").want(done, "found 0 held and 0 abandoned keys")

		key = s.strand("k2")
		s.run("resolve", "-token", s.token(key), "-reason", "not booked", "-nothing-happened", key).
			want(done, "freed: it was abandoned; the next try runs\n")
		s.run("inspect", key).want(free, "state    free: neither Redis nor the journal has such a key")
		if w := s.post("k2"); w.Code != http.StatusCreated || s.runs != 3 {
			t.Errorf("%d %s, %d runs", w.Code, w.Body, s.runs)
		}
	})
}

// fault: each request has stored its failure, and Redis has lost some of these. Expected: the scan lists each once, with the
// token of both, and forget removes them from both.
func TestOutage(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.works = true
		s.post("lost")
		s.redis.FlushAll()
		s.post("both")
		r := s.run("scan", "-namespace", "shop", "-status", "201", "-json")
		r.want(done, "found 2 responses\n", `"redis":"free"`, `"redis":"settled"`, `"token":"value-`, `"token":"done-`)
		s.run("scan", "-namespace", "shop", "-status", "500-599").want(done, "found 0 responses\n")
		s.run("scan", "-namespace", "other", "-status", "201").want(done, "found 0 responses\n")
		list := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(list, []byte(r.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		s.run("forget", "-namespace", "shop", "-reason", "r", "-list", list).want(done, "forgotten: 2 of 2\n")
		for _, key := range []string{"lost", "both"} {
			s.post(key)
		}
		if s.runs != 4 {
			t.Errorf("%d runs", s.runs)
		}
	})
}

// A response is in both, and a token names both.
func TestForgetAResponse(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.works = true
		s.post("k1")
		key := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "k1"))
		token := s.token(key)
		ofRedis, ofRow, _ := strings.Cut(token, "+")
		if !strings.HasPrefix(ofRedis, "value-") || !strings.HasPrefix(ofRow, "done-") {
			t.Fatalf("token %q", token)
		}
		for _, wrong := range []string{ofRedis, ofRow, "value-01234567-89ab-4def-8123-456789abcdef+" + ofRow, ofRedis + "+done-01234567-89ab-4def-8123-456789abcdef"} {
			s.run("forget", "-token", wrong, "-reason", "r", key).want(refused)
			s.run("inspect", key).want(done, "redis    settled", "journal  done")
		}
		s.run("forget", "-token", token, "-reason", "wrong amount", key).want(done, "forgotten: it was settled; the next try runs\n")
		if s.post("k1"); s.runs != 2 {
			t.Errorf("%d runs", s.runs)
		}
		s.redis.FlushAll()
		s.run("inspect", key).want(done, "settled", "stored   status 201", "redis    free")
		s.run("forget", "-token", s.token(key), "-reason", "r", key).want(done, "forgotten")
		s.run("inspect", key).want(free)
	})
}

func TestALiveRun(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.post("k1") // without an outcome, within its limit
		key := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "k1"))
		s.run("inspect", key).want(done, "state    held", "redis    held", "journal  running, ", " until its limit")
		token := s.token(key)
		s.run("resolve", "-token", token, "-reason", "r", "-nothing-happened", key).want(refused, "has not run out")
		s.run("forget", "-token", token, "-reason", "r", key).want(refused, "has not run out")
		s.redis.FlushAll()
		s.run("inspect", key).want(done, "state    held: a request runs, or its process died before its limit", "redis    free")
		s.run("forget", "-token", token, "-reason", "r", key).want(refused, "has not run out")
		s.run("scan", "-namespace", "shop").want(done, "held       "+key, "found 1 held and 0 abandoned keys")
		s.run("forget", "-token", token, "-reason", "r", "-even-if-live", key).want(done, "forgotten: it was held")
		s.run("inspect", key).want(free)
	})
}

// Rows that a sweep was handed show that, and what it has marked as done.
func TestSweptRows(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		left, answered := s.strand("left"), s.strand("done")
		db, _, err := openDatabase(s.url)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		n, err := s.journal.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
			if u.Key == left {
				return nil
			}
			return u.Done(ctx, db, time.Hour, nil)
		})
		if n != 2 || err != nil {
			t.Fatal(n, err)
		}
		s.run("inspect", left).want(done, "state    abandoned: ", "a sweep is finding out", "journal  unfinished, and handed to a sweep for ", "swept    once\n")
		s.run("inspect", answered).want(done, "state    settled: a request has ended, and its result was not kept; retries get 409 response-not-stored",
			"journal  done, without a response")
		s.run("scan", "-namespace", "shop", "-json").want(done, `"state":"abandoned"`, `"journal":{"state":"done"`, "and 1 that are done without")
		s.run("scan", "-namespace", "shop", "-json").want(done, `"note":"order 7\u001b[2J"`)
		s.exec(`update onceguard_journal set until = began_at, attempts = 2 where onceguard_journal.key = '` + left + `'`)
		s.run("inspect", left).want(done, "journal  unfinished: the time of its sweep ended ", "swept    2 times\n")
		if w := s.post("done"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "response-not-stored") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		s.run("resolve", "-token", s.token(answered), "-reason", "r", "-nothing-happened", answered).want(refused, "the run has its outcome, and Resolve replaces none: the journal has it")
		s.redis.FastForward(time.Minute) // the claim of the retry
		for name, key := range map[string]string{"left": left, "done": answered} {
			s.run("resolve", "-token", s.token(key), "-reason", "booked", "-status", "202", key).want(done, "resolved: it was ")
			if w := s.post(name); w.Code != http.StatusAccepted || s.runs != 2 {
				t.Errorf("%s: %d %s, %d runs", name, w.Code, w.Body, s.runs)
			}
		}
	})
}

// During a roll-out a service has both WithAtMostOnce and a journal, so Redis keeps the claim of a retry that died before it
// could release it. The row is of another run. Expected: what is freed is free in both.
func TestAClaimBesideARow(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "k1"))
		claim, err := s.locker.Claim(t.Context(), keyfunc.StandardKey("ann", "POST", "/payments", "k1"), nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claim.Lease.Abandon()
		s.redis.FastForward(time.Minute)
		s.strandOther(key)
		r := s.run("inspect", key)
		r.want(done, "state    abandoned", "token    "+claim.Lease.Token()+"+", "redis    abandoned", "journal  unfinished")
		s.run("resolve", "-token", s.token(key), "-reason", "not booked", "-nothing-happened", key).want(done, "freed: it was abandoned")
		s.run("inspect", key).want(free)
	})
}

// strandOther puts the row of another run without an outcome under the key.
func (s *shop) strandOther(key string) {
	other := s.strand("other")
	column := "key"
	if strings.HasPrefix(s.url, "mysql:") {
		column = "`key`" // a reserved word
	}
	s.exec("update onceguard_journal set " + column + " = '" + key + "' where " + column + " = '" + other + "'")
}

func TestWrongURL(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	env := map[string]string{"REDIS_URL": "redis://" + server.Addr()}
	key := "shop:{290c}a43065beb94174f18c2774127949e802b5db609eaa504db86bcae1f38564c511"
	onceguard(t, env, "inspect", key).want(usage, "-journal is missing, and JOURNAL_URL is not set")
	for _, url := range []string{
		"secret", "oracle://a:secret@b/c", "mysql://a:secret@b", "mysql://a:12#secret@b/c", "mysql://a:secret@b/c?tls=secret", "mysql:///secret",
		"sqlite:", "postgres://a:secret@host:port/db", "postgres://ops:12#secret@host/db",
		"postgres://ops:12/secret@host:x/db", "postgres://host:1/db?sslmode=secret",
	} {
		r := onceguard(t, env, "inspect", "-journal", url, key)
		r.want(usage, "want postgres://")
		if strings.Contains(r.stdout+r.stderr, "secret") {
			t.Errorf("%s: a part of it is printed: %+v", url, r)
		}
	}
	for url, want := range map[string]string{
		"sqlite:" + t.TempDir() + "/missing.db":                    "unable to open database file",
		"postgres://ops:secret@127.0.0.1:1/db":                     "connection refused",
		"mysql://ops:secret@127.0.0.1:1/db":                        "connection refused",
		"postgres://ops:secret@127.0.0.1:1/db?sslmode=verify-full": "connection refused",
	} {
		r := onceguard(t, env, "inspect", "-journal", url, key)
		r.want(failed, want)
		if strings.Contains(r.stdout+r.stderr, "secret") {
			t.Errorf("%s: the password is printed: %+v", url, r)
		}
	}
}
