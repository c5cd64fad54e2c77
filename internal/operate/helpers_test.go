package operate

import (
	"bytes"
	"cmp"
	"context"
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

const (
	someKey   = "shop:{290c}a43065beb94174f18c2774127949e802b5db609eaa504db86bcae1f38564c511"
	someToken = "01234567-89ab-4def-8123-456789abcdef"
)

// result is what a command has left.
type result struct {
	t              *testing.T
	code           int
	stdout, stderr string
}

// onceguard runs a command line, whose words are separated by blanks, and then more.
func onceguard(t *testing.T, env Environment, line string, more ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env.Stdout, env.Stderr, env.User = &stdout, &stderr, "ops"
	if env.Stdin == nil {
		env.Stdin = strings.NewReader("")
	}
	if env.Getenv == nil {
		env.Getenv = func(string) string { return "" }
	}
	args := append(strings.Fields(line), more...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], spaceInName, " ")
	}
	code := Run(t.Context(), args, env)
	return result{t, code, stdout.String(), stderr.String()}
}

// want checks the exit code, and that the output has each of the texts.
func (r result) want(code int, texts ...string) result {
	r.t.Helper()
	if r.code != code {
		r.t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			r.t.Errorf("no %q in\nstdout: %s\nstderr: %s", text, r.stdout, r.stderr)
		}
	}
	return r
}

// hides checks that the output has none of the texts.
func (r result) hides(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(r.stdout+r.stderr, text) {
			r.t.Errorf("%q in\nstdout: %s\nstderr: %s", text, r.stdout, r.stderr)
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

// open opens a shop on a Redis.
func open(t *testing.T, client redis.UniversalClient, url string, elapse func(time.Duration), opts ...middleware.Option) *shop {
	t.Helper()
	s := &shop{t: t, url: url, elapse: elapse}
	s.locker = lock.New(client, "shop", lock.WithOpTimeout(30*time.Second), lock.WithTTL(2*time.Minute), lock.WithFencing())
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

// openMini opens a shop on a miniredis.
func openMini(t *testing.T, opts ...middleware.Option) *shop {
	t.Helper()
	t.Parallel()
	mini := redistest.Mini(t)
	return open(t, mini.Client(t), "redis://"+mini.Addr(), func(d time.Duration) { mini.Elapse(t, d) }, opts...)
}

// post posts ann's payment.
func (s *shop) post(key string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":1250}`))
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
	s.elapse(2*time.Minute + time.Second)
	return s.key(key)
}

// key returns the storage key of a payment.
func (s *shop) key(key string) string {
	return s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", key))
}

// run runs a command on the shop's Redis.
func (s *shop) run(line string, more ...string) result {
	s.t.Helper()
	return onceguard(s.t, Environment{}, line, append(more, "-redis", s.url, "-timeout", "1m")...)
}

// token returns the token that inspect prints.
func (s *shop) token(storageKey string) string {
	s.t.Helper()
	r := s.run("inspect -json " + storageKey)
	var f struct{ Token string }
	if err := json.Unmarshal([]byte(r.stdout), &f); err != nil {
		s.t.Fatalf("%v: %+v", err, r)
	}
	return f.Token
}

// change runs a command that changes the key, with its token.
func (s *shop) change(line, storageKey string, more ...string) result {
	s.t.Helper()
	return s.run(line, append([]string{"-reason", "ticket 7", "-token", s.token(storageKey), storageKey}, more...)...)
}

// spaceInName is a space in the name of a file, where a line of words has that name.
const spaceInName = "\x00"

// writeFile returns the name of a new file for the line of a run.
func writeFile(t *testing.T, text string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(name, " ", spaceInName)
}
