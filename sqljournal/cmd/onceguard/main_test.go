package main

import (
	"context"
	"net/http"
	"net/http/httptest"
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
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) { test(t, open(t, d)) })
}

func open(t *testing.T, d dbtest.Database) *shop {
	s := &shop{t: t, redis: miniredis.RunT(t), url: "sqlite:" + d.Name()}
	if d.Server != nil {
		s.url = d.URL()
	}
	if d.Kind == dbtest.KindMySQL {
		s.url = "mysql://root@" + d.Server.Addr() + "/" + d.Name()
	}
	client := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	s.locker = lock.New(client, "shop", lock.WithOpTimeout(30*time.Second), lock.WithTTL(50*time.Second))
	t.Cleanup(func() {
		if err := s.locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	s.journal = sqljournal.Intent(d.Open(t), "shop", d.Kind.Options()...)
	s.handler = middleware.Idempotency(s.locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithJournal(s.journal), middleware.WithMaxDuration(time.Hour))(
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
	return s
}

// post sends a payment, and returns the status.
func (s *shop) post(key string) int {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("pay"))
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Code
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
	t    *testing.T
	code int
	text string // the standard output, and then the standard error
}

// run runs a command on the shop's Redis and journal. The words of line are separated by blanks.
func (s *shop) run(line string, stdin ...string) result {
	s.t.Helper()
	return onceguard(s.t, "redis://"+s.redis.Addr(), s.url, line, stdin...)
}

// change runs a command that changes the key, with its token.
func (s *shop) change(line, key string) result {
	s.t.Helper()
	return s.run(line + " -reason r " + key + " -token " + s.token(key))
}

func onceguard(t *testing.T, redisURL, journalURL, line string, stdin ...string) result {
	t.Helper()
	var stdout, stderr strings.Builder
	env := map[string]string{"REDIS_URL": redisURL, "JOURNAL_URL": journalURL}
	code := operate.Run(t.Context(), append(strings.Fields(line), "-timeout", "1m"), operate.Environment{
		Stdin: strings.NewReader(strings.Join(stdin, "")), Stdout: &stdout, Stderr: &stderr,
		User: "ops", OpenJournal: openJournal, Getenv: func(name string) string { return env[name] },
	})
	return result{t, code, stdout.String() + stderr.String()}
}

// want checks the exit code, and that the output has each of the texts.
func (r result) want(code int, texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.text, text) {
			r.t.Errorf("no %q in %s", text, r.text)
		}
	}
	if r.code != code {
		r.t.Errorf("exit code %d, want %d: %s", r.code, code, r.text)
	}
	return r
}

// token returns the token that inspect prints.
func (s *shop) token(key string) string {
	s.t.Helper()
	_, after, _ := strings.Cut(s.run("inspect "+key).text, "\ntoken    ")
	token, _, _ := strings.Cut(after, "\n")
	return token
}

// wantPost sends a payment, and checks the status and how often the handler has run.
func (s *shop) wantPost(key string, want, runs int) {
	s.t.Helper()
	if status := s.post(key); status != want || s.runs != runs {
		s.t.Errorf("%d, want %d, %d runs, want %d", status, want, s.runs, runs)
	}
}

func (s *shop) key(key string) string {
	return s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", key))
}

// fault: a process dies after the charge, and its claim expires. Expected: the row shows, a retry does not run, and an
// operator settles it. What is freed is free in both: during a roll-out a service has both WithAtMostOnce and a journal, so
// Redis keeps the claim of a retry that died before it could release it.
func TestARunThatOnlyTheJournalKnows(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		s.run("inspect "+key).want(done, "state    abandoned: a request ended without an outcome; retries get 409 outcome-unknown",
			"redis    free", "journal  unfinished: its limit was ", "began    20", `note     order 7\u001b[2J`)
		s.run("inspect -namespace=shop -user=ann -path=/payments -key=k1 -json").
			want(done, `"state":"abandoned"`, `"redis":"free"`, `"state":"unfinished"`, `"began_at":"20`)
		s.run("scan -namespace shop").want(done, "abandoned  "+key, "found 0 held and 1 abandoned keys, and 0 that are done")
		s.wantPost("k1", http.StatusConflict, 1)
		s.redis.FlushAll() // the claim of the retry
		s.run("resolve -status 202 -reason r -token " + someToken + " " + key).want(refused)
		s.change("resolve -status 202", key).
			want(done, "resolved: it was abandoned; every retry gets 202 for 24h0m0s", "msg=resolve", "before=abandoned")
		s.run("inspect "+key).want(done, "state    settled: retries get the stored response", "run      of an HTTP request", "stored   status 202", "journal  done; ends in 2")
		s.wantPost("k1", http.StatusAccepted, 1)
		s.run("scan -namespace shop").want(done, "found 0 held and 0 abandoned keys")

		key = s.strand("k2")
		claim, err := s.locker.Claim(t.Context(), keyfunc.StandardKey("ann", "POST", "/payments", "k2"), nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claim.Lease.Abandon()
		s.redis.FastForward(time.Minute)
		s.run("inspect "+key).want(done, "token    "+claim.Lease.Token()+"+", "redis    abandoned", "journal  unfinished")
		s.change("resolve -nothing-happened", key).want(done, "freed: it was abandoned; the next try runs\n")
		s.run("inspect "+key).want(free, "state    free: neither Redis nor the journal has such a key")

		s.works = false
		s.post("live") // without an outcome, within its limit
		live := s.key("live")
		s.run("inspect "+live).want(done, "state    held", "redis    held", "journal  running, ")
		s.change("resolve -nothing-happened", live).want(refused, "has not run out")
		s.change("forget", live).want(refused, "has not run out")
		s.redis.FlushAll()
		s.change("forget", live).want(refused, "has not run out")
		s.run("scan -namespace shop").want(done, "held       "+live, "found 1 held and 0 abandoned keys")
		s.change("forget -even-if-live", live).want(done, "forgotten: it was held")
		s.run("inspect " + live).want(free)
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
		ofRedis, ofRow, _ := strings.Cut(s.token(key), "+")
		for _, wrong := range []string{ofRedis, ofRow, "value-" + someToken + "+" + ofRow, ofRedis + "+done-" + someToken} {
			s.run("forget -reason r -token " + wrong + " " + key).want(refused)
			s.run("inspect "+key).want(done, "token    value-", "+done-", "redis    settled", "journal  done")
		}
		s.change("forget", key).want(done, "forgotten: it was settled; the next try runs\n")
		s.wantPost("both", http.StatusCreated, 3)

		s.run("scan -namespace shop -status 500-599").want(done, "found 0 responses\n")
		s.run("scan -namespace other -status 201").want(done, "found 0 responses\n")
		found := s.run("scan -namespace shop -status 201 -json").want(done, `"redis":"free"`, `"redis":"settled"`, `"token":"value-`, `"token":"done-`)
		s.run("forget -namespace shop -reason r -list -", strings.TrimSuffix(found.text, "found 2 responses\n")).want(done, "forgotten: 2 of 2\n")
		s.wantPost("lost", http.StatusCreated, 4)
		s.wantPost("both", http.StatusCreated, 5)
	})
}

// Rows that a sweep was handed show that, and what it has marked as done. Both take a response.
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
		s.run("inspect "+left).want(done, "state    abandoned: ", "a sweep is finding out", "journal  unfinished, and handed to a sweep for ", "swept    1\n")
		s.run("inspect "+answered).want(done, "state    settled: a request has ended, and its result was not kept; retries get 409 response-not-stored",
			"journal  done, without a response")
		s.run("scan -namespace shop -json").want(done, `"state":"abandoned"`, `"journal":{"attempts":1`, `"state":"done"`, `"note":"order 7\u001b[2J"`, "and 1 that are done without")
		s.wantPost("done", http.StatusConflict, 2)
		s.redis.FlushAll() // the claim of the retry
		s.change("resolve -nothing-happened", answered).want(refused, "the run has its outcome, and Resolve replaces none: the journal has it")
		for name, key := range map[string]string{"left": left, "done": answered} {
			s.change("resolve -status 202", key).want(done, "resolved: it was ")
			s.wantPost(name, http.StatusAccepted, 2)
		}
	})
}

// fault: Redis does not answer, from the beginning or later. Expected: inspect says what the journal has and that Redis was
// not asked, never that the key is free; the others change nothing. With -redis none each command works on the rows.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.SQLite(t))
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
		s.redis.FlushAll() // the claim of the retry
		r := onceguard(t, redisURL, "postgres://127.0.0.1:1/db", "inspect "+key).want(failed, "sqljournal: inspect: ")
		if strings.Contains(r.text, "onceguard: redis: ") != (what == "refused") || strings.Count(r.text, "sqljournal: ") != 1 {
			t.Errorf("Redis %s: %s", what, r.text)
		}
	}
	s.run("scan -redis none -namespace shop").want(done, "abandoned  "+key, "found 0 held and 1 abandoned")
	s.change("resolve -redis none -status 202", key).want(done, "resolved")
	s.run("inspect -redis none "+key).want(done, "state    settled", "redis    none")
	s.change("forget -redis none", key).want(done, "forgotten")
	s.run("inspect -redis none "+key).want(free, "state    free: the journal has no such key: it may be mistyped. The next try with it runs\n")
	s.run("forget -redis none -reason r -token t "+key).want(free, "nothing was changed")
}

// No part of a URL that is refused is printed: a password that is not in percent-encoding may be anywhere in it.
func TestWrongURL(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	const (
		key   = "shop:{290c}a43065beb94174f18c2774127949e802b5db609eaa504db86bcae1f38564c511"
		wrong = "want postgres://"
		dead  = "connection refused"
	)
	onceguard(t, "redis://"+server.Addr(), "", "inspect "+key).want(usage, "-journal is missing, and JOURNAL_URL is not set")
	for url, want := range map[string]string{
		"secret": wrong, "oracle://a:secret@b/c": wrong, "mysql://a:secret@b": wrong, "mysql://a:12#secret@b/c": wrong,
		"mysql://a:secret@b/c?tls=secret": wrong, "mysql:///secret": wrong, "sqlite:": wrong, "postgres://a:secret@host:port/db": wrong,
		"postgres://ops:12#secret@host/db": wrong, "postgres://ops:12/secret@host:x/db": wrong, "postgres://host:1/db?sslmode=secret": wrong,
		"sqlite:" + t.TempDir() + "/missing.db": "unable to open database file", "mysql://ops:secret@127.0.0.1:1/db": dead,
		"postgres://ops:secret@127.0.0.1:1/db": dead, "postgres://ops:secret@127.0.0.1:1/db?sslmode=verify-full": dead,
	} {
		code := map[bool]int{true: usage, false: failed}[want == wrong]
		r := onceguard(t, "redis://"+server.Addr(), url, "inspect "+key).want(code, want)
		if strings.Contains(r.text, "secret") {
			t.Errorf("%s is in %s", url, r.text)
		}
	}
}
