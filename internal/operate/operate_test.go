package operate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	return onceguardWith(t, Environment{}, args...)
}

func onceguardWith(t *testing.T, env Environment, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env.Stdout, env.Stderr, env.User = &stdout, &stderr, "ops"
	if env.Stdin == nil {
		env.Stdin = strings.NewReader("")
	}
	if env.Getenv == nil {
		env.Getenv = func(string) string { return "" }
	}
	code := Run(t.Context(), args, env)
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
	status  int  // of the response, 201 if it is 0
	runs    int
}

const body = `{"amount":1250}`

// open opens a shop on a Redis.
func open(t *testing.T, client redis.UniversalClient, url string, elapse func(time.Duration), opts ...middleware.Option) *shop {
	t.Helper()
	s := &shop{t: t, url: url, elapse: elapse}
	s.locker = lock.New(client, "shop", lock.WithOpTimeout(20*time.Second), lock.WithTTL(time.Minute), lock.WithFencing())
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
			w.WriteHeader(cmp.Or(s.status, http.StatusCreated))
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
	s.elapse(time.Minute + time.Second)
	return s.key(key)
}

// key returns the storage key of a payment.
func (s *shop) key(key string) string {
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
		s.elapse(time.Minute + time.Second)
		s.run("inspect", key).want(t, exitDone, "abandoned: a request ended without an outcome", "lease    over", "hold     23h59m5")
		s.works = true
		s.post("k2")
		s.run("inspect", "-namespace", "shop", "-user", "ann", "-path", "/payments", "-key", "k2").
			want(t, exitDone, "settled: retries get the stored response", "stored   status 201, a body of 0 bytes", "token    value-", "ends     in 2", "settled  20")

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

// The flags of a request give the key that the service derives from it, whatever the scope is.
func TestInspectByRequest(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		ann, tenant := keyfunc.BasicUser(), func(*http.Request) (string, error) { return "acme", nil }
		r := httptest.NewRequest(http.MethodPost, "http://Shop.Example.com:8080/payments?a=1", nil)
		r.SetBasicAuth("ann", "")
		r.Header.Set("Idempotency-Key", `"k1"`)
		for _, c := range []struct {
			key   keyfunc.Func
			flags []string
			said  string
		}{
			{keyfunc.Standard(ann), []string{"-user=ann"}, `user "ann"`},
			{keyfunc.Standard(keyfunc.Compose(tenant, ann)), []string{"-user=acme", "-user=ann"}, `user "acme" "ann"`},
			{keyfunc.Compose(keyfunc.Standard(ann), keyfunc.Host()), []string{"-user=ann", "-host=SHOP.example.com:8080"}, `host "shop.example.com:8080"`},
			{keyfunc.Standard(keyfunc.Anonymous()), []string{"-anonymous"}, "no user (-anonymous)"},
		} {
			key, err := c.key(r)
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"inspect", "-namespace=shop", "-path=/payments", "-key=k1"}, c.flags...)
			s.run(args...).want(t, exitFree, "key      "+s.locker.StorageKey(key), c.said)
		}
	})
}

// A response that is stored encrypted shows with its keys alone. Its state shows in any case.
func TestInspectEncrypted(t *testing.T) {
	secret := bytes.Repeat([]byte("s"), 32)
	each(t, func(t *testing.T, s *shop) {
		s.works = true
		s.post("k1")
		key := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "k1"))
		s.run("inspect", key).want(t, exitDone, "settled:", "stored   cannot be read: ", "encrypted")
		s.run("inspect", "-json", key).want(t, exitDone, `"state":"settled"`, `"stored":{"unreadable":"`)
		file := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(file, []byte(hex.EncodeToString(secret)), 0o600); err != nil {
			t.Fatal(err)
		}
		s.run("inspect", "-keys-file", file, key).want(t, exitDone, "stored   status 201")
		s.run("inspect", "-keys-file", file, "-json", key).want(t, exitDone, `"stored":{"status":201,"completed_at":"20`)
	}, middleware.WithEncryption(secret))
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
		s.run("forget", "-token", token, "-reason", "ticket 7", key).want(t, exitDone, "forgotten: it was abandoned; the next try runs, unless a journal",
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
