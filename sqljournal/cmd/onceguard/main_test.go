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

const someToken = "01234567-89ab-4def-8123-456789abcdef"

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
		s.locker = lock.New(client, "shop", lock.WithOpTimeout(30*time.Second))
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
	s.exec(`update onceguard_journal set until = began_at where onceguard_journal.key = '` + s.key(key) + `'`)
	return s.key(key)
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

// run runs a command on the shop's Redis and journal. The words of line are separated by blanks.
func (s *shop) run(line string) result {
	s.t.Helper()
	return onceguard(s.t, "redis://"+s.redis.Addr(), s.url, line)
}

// change runs a command that changes the key, with its token.
func (s *shop) change(line, key string) result {
	s.t.Helper()
	return s.run(line + " -reason r " + key + " -token " + s.token(key))
}

func onceguard(t *testing.T, redisURL, journalURL, line string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := map[string]string{"REDIS_URL": redisURL, "JOURNAL_URL": journalURL}
	code := operate.Run(t.Context(), strings.Fields(line), operate.Environment{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, User: "ops", OpenJournal: openJournal,
		Getenv: func(name string) string { return env[name] },
	})
	return result{t, code, stdout.String(), stderr.String()}
}

// want checks the exit code, and that the output has each of the texts.
func (r result) want(code int, texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			r.t.Errorf("no %q in\nstdout: %s\nstderr: %s", text, r.stdout, r.stderr)
		}
	}
	if r.code != code {
		r.t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

// hides checks that the output does not have the text.
func (r result) hides(text string) {
	r.t.Helper()
	if strings.Contains(r.stdout+r.stderr, text) {
		r.t.Errorf("%q in\nstdout: %s\nstderr: %s", text, r.stdout, r.stderr)
	}
}

func (s *shop) token(key string) string {
	s.t.Helper()
	r := s.run("inspect -json " + key)
	var facts struct{ Token string }
	if err := json.Unmarshal([]byte(r.stdout), &facts); err != nil {
		s.t.Fatalf("%v: %+v", err, r)
	}
	return facts.Token
}

// wantPost sends a payment, and checks the status and how often the handler has run.
func (s *shop) wantPost(key string, status, runs int) {
	s.t.Helper()
	if w := s.post(key); w.Code != status || s.runs != runs {
		s.t.Errorf("%d %s, want %d, %d runs, want %d", w.Code, w.Body, status, s.runs, runs)
	}
}

func (s *shop) key(key string) string {
	return s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", key))
}

// fault: a process dies after the charge, and its claim expires. Expected: the row shows, a retry does not run, and an
// operator settles it.
func TestARunThatOnlyTheJournalKnows(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		s.run("inspect "+key).want(done, "state    abandoned: a request ended without an outcome; retries get 409 outcome-unknown",
			"redis    free", "journal  unfinished: its limit was ", "began    20", `note     order 7\u001b[2J`)
		s.run("inspect -namespace=shop -user=ann -path=/payments -key=k1 -json").
			want(done, `"state":"abandoned"`, `"redis":"free"`, `"state":"unfinished"`, `"began_at":"20`)
		s.run("scan -namespace shop").want(done, "abandoned  "+key, "found 0 held and 1 abandoned keys, and 0 that are done")
		s.wantPost("k1", http.StatusConflict, 1)
		token := s.token(key)
		s.run("resolve -status 202 -reason r -token " + someToken + " " + key).want(refused)
		s.redis.FastForward(time.Minute) // the claim of the retry
		s.run("resolve -status 202 -reason booked -token "+token+" "+key).
			want(done, "resolved: it was abandoned; every retry gets 202 for 24h0m0s", "msg=resolve", "before=abandoned")
		s.run("inspect "+key).want(done, "state    settled: retries get the stored response", "run      of an HTTP request", "stored   status 202", "journal  done; ends in 2")
		s.wantPost("k1", http.StatusAccepted, 1)
		s.run("scan -namespace shop").want(done, "found 0 held and 0 abandoned keys")

		key = s.strand("k2")
		s.change("resolve -nothing-happened", key).want(done, "freed: it was abandoned; the next try runs\n")
		s.run("inspect "+key).want(free, "state    free: neither Redis nor the journal has such a key")
		s.wantPost("k2", http.StatusCreated, 3)
	})
}

// A response is in both, and a token names both. fault: Redis has lost some. Expected: the scan lists each once, and forget
// removes them from both.
func TestResponses(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.works = true
		s.post("lost")
		s.redis.FlushAll()
		s.post("both")
		key := s.key("both")
		token := s.token(key)
		ofRedis, ofRow, _ := strings.Cut(token, "+")
		if !strings.HasPrefix(ofRedis, "value-") || !strings.HasPrefix(ofRow, "done-") {
			t.Fatalf("token %q", token)
		}
		for _, wrong := range []string{ofRedis, ofRow, "value-" + someToken + "+" + ofRow, ofRedis + "+done-" + someToken} {
			s.run("forget -reason r -token " + wrong + " " + key).want(refused)
			s.run("inspect "+key).want(done, "redis    settled", "journal  done")
		}
		s.change("forget", key).want(done, "forgotten: it was settled; the next try runs\n")
		s.wantPost("both", http.StatusCreated, 3)

		r := s.run("scan -namespace shop -status 201 -json").
			want(done, "found 2 responses\n", `"redis":"free"`, `"redis":"settled"`, `"token":"value-`, `"token":"done-`)
		s.run("scan -namespace shop -status 500-599").want(done, "found 0 responses\n")
		s.run("scan -namespace other -status 201").want(done, "found 0 responses\n")
		list := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(list, []byte(r.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		s.run("forget -namespace shop -reason r -list "+list).want(done, "forgotten: 2 of 2\n")
		s.wantPost("lost", http.StatusCreated, 4)
		s.wantPost("both", http.StatusCreated, 5)
	})
}

func TestALiveRun(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.post("k1") // without an outcome, within its limit
		key := s.key("k1")
		s.run("inspect "+key).want(done, "state    held", "redis    held", "journal  running, ", " until its limit")
		s.change("resolve -nothing-happened", key).want(refused, "has not run out")
		s.change("forget", key).want(refused, "has not run out")
		s.redis.FlushAll()
		s.run("inspect "+key).want(done, "state    held: a request runs, or its process died before its limit", "redis    free")
		s.change("forget", key).want(refused, "has not run out")
		s.run("scan -namespace shop").want(done, "held       "+key, "found 1 held and 0 abandoned keys")
		s.change("forget -even-if-live", key).want(done, "forgotten: it was held")
		s.run("inspect " + key).want(free)
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
		s.run("inspect "+left).want(done, "state    abandoned: ", "a sweep is finding out", "journal  unfinished, and handed to a sweep for ", "swept    once\n")
		s.run("inspect "+answered).want(done, "state    settled: a request has ended, and its result was not kept; retries get 409 response-not-stored",
			"journal  done, without a response")
		s.run("scan -namespace shop -json").want(done, `"state":"abandoned"`, `"journal":{"attempts":1`, `"state":"done"`, `"note":"order 7\u001b[2J"`, "and 1 that are done without")
		s.exec(`update onceguard_journal set until = began_at, attempts = 2 where onceguard_journal.key = '` + left + `'`)
		s.run("inspect "+left).want(done, "journal  unfinished: the time of its sweep ended ", "swept    2 times\n")
		s.wantPost("done", http.StatusConflict, 2)
		s.change("resolve -nothing-happened", answered).want(refused, "the run has its outcome, and Resolve replaces none: the journal has it")
		s.redis.FastForward(time.Minute) // the claim of the retry
		for name, key := range map[string]string{"left": left, "done": answered} {
			s.change("resolve -status 202", key).want(done, "resolved: it was ")
			s.wantPost(name, http.StatusAccepted, 2)
		}
	})
}

// During a roll-out a service has both WithAtMostOnce and a journal, so Redis keeps the claim of a retry that died before it
// could release it. The row is of another run. Expected: what is freed is free in both.
func TestAClaimBesideARow(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key, column := s.key("k1"), "key"
		claim, err := s.locker.Claim(t.Context(), keyfunc.StandardKey("ann", "POST", "/payments", "k1"), nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claim.Lease.Abandon()
		if strings.HasPrefix(s.url, "mysql:") {
			column = "`key`" // a reserved word
		}
		s.exec("update onceguard_journal set " + column + " = '" + key + "' where " + column + " = '" + s.strand("other") + "'")
		s.run("inspect "+key).want(done, "state    abandoned", "token    "+claim.Lease.Token()+"+", "redis    abandoned", "journal  unfinished")
		s.change("resolve -nothing-happened", key).want(done, "freed: it was abandoned")
		s.run("inspect " + key).want(free)
	})
}

// A service without Redis: each command works on the rows.
func TestNoRedis(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		s.run("inspect -redis none "+key).want(done, "state    abandoned: ", "redis    none", "journal  unfinished").hides("in Redis")
		s.run("scan -redis none -namespace shop").want(done, "abandoned  "+key, "found 0 held and 1 abandoned")
		s.change("resolve -redis none -status 202", key).want(done, "resolved")
		s.wantPost("k1", http.StatusAccepted, 1)
		s.redis.FlushAll()
		s.change("forget -redis none", key).want(done, "forgotten")
		s.run("inspect -redis none "+key).want(free, "state    free: the journal has no such key: it may be mistyped. The next try with it runs\n")
		s.run("forget -redis none -reason r -token t "+key).want(free, "nothing was changed")
	})
}

// fault: Redis does not answer, from the beginning or later. Expected: inspect says what the journal has and that Redis was
// not asked, never that the key is free; the others change nothing.
func TestRedisIsDown(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key, other := s.strand("k1"), s.key("other")
		token := s.token(key)
		for what, redisURL := range map[string]string{"refused": "redis://127.0.0.1:1", "loading": "redis://" + s.redis.Addr()} {
			s.redis.SetError("LOADING Redis is loading the dataset in memory")
			run := func(line string) result { return onceguard(t, redisURL, s.url, line) }
			run("inspect "+key).want(failed, "state    abandoned: ", "redis    unknown", "journal  unfinished", "onceguard: only the journal was asked: ")
			run("inspect -json "+key).want(failed, `"state":"abandoned"`, `"redis":"unknown"`)
			run("inspect "+other).want(failed, "runs, unless Redis has its outcome")
			run("scan -namespace shop").want(failed)
			run("resolve -status 202 -reason r -token " + token + " " + key).want(failed)
			run("forget -reason r -token " + someToken + " " + other).want(failed)
			s.redis.SetError("")
			s.wantPost("k1", http.StatusConflict, 1)
			s.redis.FastForward(time.Minute)
			r := onceguard(t, redisURL, "postgres://127.0.0.1:1/db", "inspect "+key).want(failed, "sqljournal: inspect: ")
			if strings.Contains(r.stderr, "onceguard: redis: ") != (what == "refused") || strings.Count(r.stderr, "sqljournal: ") != 1 {
				t.Errorf("Redis %s: %s", what, r.stderr)
			}
		}
		s.change("resolve -redis none -status 202", key).want(done, "resolved")
		s.wantPost("k1", http.StatusAccepted, 1)
	})
}

// fault: the journal's database, or Redis, does not answer while an operator asks for a lock, of which no journal has a row.
// Expected: the command needs Redis alone, and never says that a lock is free which it could not see.
func TestLockBesideAJournal(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	for _, state := range []string{"free", "held"} {
		r := onceguard(t, "redis://"+server.Addr(), "postgres://127.0.0.1:1/db", "inspect -namespace shop -lock nightly")
		r.want(map[string]int{"free": free, "held": done}[state], "state    "+state+": ").hides("journal")
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		locker := lock.New(client, "shop")
		defer locker.Close(context.Background())
		if _, ok, err := locker.TryAcquire(t.Context(), "nightly"); ok != (state == "free") || err != nil {
			t.Fatal(ok, err)
		}
	}
	onceguard(t, "redis://127.0.0.1:1", "postgres://127.0.0.1:1/db", "inspect -namespace shop -lock nightly").want(failed).hides("free")
	onceguard(t, "none", "postgres://127.0.0.1:1/db", "inspect -namespace shop -lock nightly").want(usage, "-lock: a lock is in Redis, and -redis is none")
}

func TestWrongURL(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	const key = "shop:{290c}a43065beb94174f18c2774127949e802b5db609eaa504db86bcae1f38564c511"
	inspect := func(url string) result { return onceguard(t, "redis://"+server.Addr(), url, "inspect "+key) }
	inspect("").want(usage, "-journal is missing, and JOURNAL_URL is not set")
	for _, url := range []string{
		"secret", "oracle://a:secret@b/c", "mysql://a:secret@b", "mysql://a:12#secret@b/c", "mysql://a:secret@b/c?tls=secret", "mysql:///secret",
		"sqlite:", "postgres://a:secret@host:port/db", "postgres://ops:12#secret@host/db",
		"postgres://ops:12/secret@host:x/db", "postgres://host:1/db?sslmode=secret",
	} {
		inspect(url).want(usage, "want postgres://").hides("secret")
	}
	for url, want := range map[string]string{
		"sqlite:" + t.TempDir() + "/missing.db":                    "unable to open database file",
		"postgres://ops:secret@127.0.0.1:1/db":                     "connection refused",
		"mysql://ops:secret@127.0.0.1:1/db":                        "connection refused",
		"postgres://ops:secret@127.0.0.1:1/db?sslmode=verify-full": "connection refused",
	} {
		inspect(url).want(failed, want).hides("secret")
	}
}
