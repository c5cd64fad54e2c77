package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// result is what a command has left.
type result struct {
	code           int
	stdout, stderr string
}

// onceguard runs a command line.
func onceguard(t *testing.T, args ...string) result {
	t.Helper()
	return onceguardWith(t, environment{}, args...)
}

func onceguardWith(t *testing.T, env environment, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env.stdout, env.stderr, env.user = &stdout, &stderr, "ops"
	if env.stdin == nil {
		env.stdin = strings.NewReader("")
	}
	if env.getenv == nil {
		env.getenv = func(string) string { return "" }
	}
	code := run(t.Context(), args, env)
	return result{code, stdout.String(), stderr.String()}
}

// want checks the exit code, and that the output has each of the texts.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("no %q in\nstdout: %s\nstderr: %s", text, r.stdout, r.stderr)
		}
	}
}

// shop is a protected handler, whose keys are in the namespace "shop".
type shop struct {
	t       *testing.T
	url     string // of Redis
	locker  *lock.Locker
	elapse  func(time.Duration)
	handler http.Handler
	works   bool // or else no run knows its outcome
	runs    int
}

const body = `{"amount":1250}`

// open opens a shop on a Redis.
func open(t *testing.T, client redis.UniversalClient, url string, elapse func(time.Duration), opts ...middleware.Option) *shop {
	t.Helper()
	s := &shop{t: t, url: url, elapse: elapse}
	s.locker = lock.New(client, "shop", lock.WithOpTimeout(20*time.Second), lock.WithTTL(time.Second), lock.WithFencing())
	t.Cleanup(func() {
		if err := s.locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	opts = append(opts, middleware.WithAtMostOnce())
	s.handler = middleware.Idempotency(s.locker, keyfunc.Standard(keyfunc.BasicUser()), opts...)(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.runs++
			if !s.works {
				middleware.FromContext(r.Context()).Unknown()
			}
			w.WriteHeader(http.StatusCreated)
		}))
	return s
}

// each opens a shop on a miniredis and on a real server.
func each(t *testing.T, test func(t *testing.T, s *shop), opts ...middleware.Option) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		test(t, open(t, b.Client(t), "redis://"+b.Addr(), func(d time.Duration) { b.Elapse(t, d) }, opts...))
	})
}

func (s *shop) post(key string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// strand posts a payment whose outcome is unknown, and returns its storage key.
func (s *shop) strand(key string) (storageKey string) {
	s.t.Helper()
	s.works = false
	s.post(key)
	s.works = true
	s.elapse(2 * time.Second)
	return s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", key))
}

// run runs a command on the shop's Redis.
func (s *shop) run(args ...string) result {
	s.t.Helper()
	return onceguard(s.t, append([]string{args[0], "-redis", s.url}, args[1:]...)...)
}

// token returns the token that inspect prints.
func (s *shop) token(storageKey string) string {
	s.t.Helper()
	r := s.run("inspect", "-json", storageKey)
	var f facts
	if err := json.Unmarshal([]byte(r.stdout), &f); err != nil {
		s.t.Fatalf("%v: %+v", err, r)
	}
	return f.Token
}

func TestInspectPrintsTheState(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "k1"))
		s.run("inspect", key).want(t, exitFree, "key      "+key, "free: Redis has no such key", "unless a journal")
		s.run("inspect", "-json", key).want(t, exitFree, `{"key":"`+key+`","state":"free","ttl_ms":0}`)
		s.works = false
		s.post("k1")
		s.run("inspect", key).want(t, exitDone, "held:", "fence", "lease", "hold     24h0m0s after that", "claimed")
		s.elapse(2 * time.Second)
		s.run("inspect", key).want(t, exitDone, "abandoned: a request ended without an outcome", "lease    over", "hold     23h59m5")
		s.works = true
		s.post("k2")
		s.run("inspect", "-namespace", "shop", "-user", "ann", "-path", "/payments", "-key", "k2").
			want(t, exitDone, "settled: retries get the stored response", "token    value-", "ends     in 24h0m0s", "settled  20")

		hash := key[strings.Index(key, "}")+1:]
		for _, args := range [][]string{
			{key, "-json"},
			{"-json", "-namespace", "shop", hash},
			{"-json", "-namespace", "shop", "urn:onceguard:key:" + hash},
			{"-json", "-namespace=shop", "-user=ann", "-method=post", "-path=/payments?a=b", "-key=k1"},
		} {
			s.run(append([]string{"inspect"}, args...)...).
				want(t, exitDone, `{"key":"`+key+`","state":"abandoned","token":"`, `"claimed_at":"20`, `"hold_left_ms":8639`)
		}
		s.run("inspect", "-namespace=shop", "-anonymous", "-path=/payments", "-key=k1").want(t, exitFree)
	})
}

// Of a mistyped user or namespace the command cannot know. It prints what the key is made of, for the operator to see.
func TestOutputTellsWhatTheKeyIsMadeOf(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.strand("k1")
		request := func(namespace, user string, more ...string) []string {
			return append(more, "-namespace", namespace, user, "-method", "post", "-path", "/payments?a=b", "-key", "k1")
		}
		change := func(args []string) result {
			return s.run(append(args, "-token", "01234567-89ab-4def-8123-456789abcdef", "-reason", "r")...)
		}
		for _, test := range []struct {
			r    result
			code int
			want string
		}{
			{s.run(request("shop", "-user=ann", "inspect")...), exitDone, `namespace "shop", user "ann"`},
			{s.run(request("shop", "-user=anm", "inspect")...), exitFree, `namespace "shop", user "anm"`},
			{s.run(request("shpo", "-user=ann", "inspect")...), exitFree, `namespace "shpo", user "ann"`},
			{s.run(request("shop", "-anonymous", "inspect")...), exitFree, `namespace "shop", no user (-anonymous)`},
			{change(request("shpo", "-user=ann", "forget")), exitFree, `namespace "shpo", user "ann"`},
			{change(request("shpo", "-user=ann", "resolve", "-nothing-happened")), exitFree, `namespace "shpo", user "ann"`},
		} {
			test.r.want(t, test.code, "made of  "+test.want+`, method "POST", path "/payments", and -key`)
			if test.code == exitFree {
				test.r.want(t, exitFree, "state    free: Redis has no such key: it may be mistyped")
			}
			if strings.Contains(test.r.stdout+test.r.stderr, "k1") {
				t.Errorf("the client's key is printed: %+v", test.r)
			}
		}
	})
}

func TestForget(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.works = false
		s.post("live")
		live := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "live"))
		token := s.token(live)
		s.run("forget", "-token", token, "-reason", "r", live).want(t, exitRefused, "the lease has not run out", "level=WARN")
		s.run("inspect", live).want(t, exitDone, "held")
		s.run("forget", "-token", token, "-reason", "r", "-even-if-live", live).want(t, exitDone, "forgotten: it was held")
		s.run("inspect", live).want(t, exitFree)

		key := s.strand("k1")
		token = s.token(key)
		s.run("forget", "-token", "01234567-89ab-4def-8123-456789abcdef", "-reason", "r", key).want(t, exitRefused, "does not hold")
		s.run("forget", "-token", token[1:], "-reason", "r", key).want(t, exitRefused, "no token that Inspect returns")
		s.run("forget", "-token", token, "-reason", "ticket 7", key).want(t, exitDone, "forgotten: it was abandoned; the next try runs the request, unless a journal",
			"level=INFO", "msg=forget", "user=ops", `reason="ticket 7"`, "key="+key, "token="+token, "before=abandoned")
		s.run("forget", "-token", token, "-reason", "again", key).want(t, exitFree, "nothing was changed")
		if w := s.post("k1"); w.Code != http.StatusCreated {
			t.Errorf("the next try got %d", w.Code)
		}
		s.run("forget", "-token", token, "-reason", "r", key).want(t, exitRefused) // it is a value now
		s.run("forget", "-json", "-token", s.token(key), "-reason", "r", key).
			want(t, exitDone, `{"key":"`+key+`","result":"forgotten","state_before":"settled","state":"free"}`)
	})
}

func TestScan(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		abandoned := s.strand("abandoned")
		s.post("settled")
		s.works = false
		s.post("held")
		held := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "held"))
		r := s.run("scan", "-namespace", "shop", "-rate", "1000000")
		r.want(t, exitDone, "abandoned  "+abandoned+"  ", "held       "+held+"  ", "found 1 held and 1 abandoned keys")
		if n := strings.Count(r.stdout, "\n"); n != 2 {
			t.Errorf("%d lines:\n%s", n, r.stdout)
		}
		r = s.run("scan", "-namespace", "shop", "-json", "-rate=100000")
		for line := range strings.Lines(r.stdout) {
			var f facts
			if err := json.Unmarshal([]byte(line), &f); err != nil || f.Token == "" || f.State != "held" && f.State != "abandoned" {
				t.Errorf("%q: %v", line, err)
			}
		}
		s.run("scan", "-namespace", "other").want(t, exitDone, "found 0 held and 0 abandoned keys")
		r = onceguardWith(t, environment{terminal: true}, "scan", "-redis", s.url, "-namespace", "shop", "-rate", "100000")
		r.want(t, exitDone, "looked at ", " keys, found 1 held and 1 abandoned", "\r\x1b[K")
	})
}

// A scan is as slow as it was told to be, and ends when it is told to.
func TestScanIsPaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	for i := range 100 {
		if err := client.Set(t.Context(), string(rune('a'+i)), "", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	env := environment{stdout: new(bytes.Buffer), stderr: &stderr, getenv: func(string) string { return "redis://" + server.Addr() }}
	done := make(chan int)
	go func() { done <- run(ctx, []string{"scan", "-namespace", "shop", "-rate", "1"}, env) }()
	select {
	case code := <-done:
		t.Errorf("it ended with %d: %s", code, stderr.String())
	case <-time.After(100 * time.Millisecond): // it would take 100 s
	}
	cancel()
	if code := <-done; code != exitFailed || !strings.Contains(stderr.String(), "canceled") {
		t.Errorf("%d, %s", code, stderr.String())
	}
}
