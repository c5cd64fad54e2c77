package system_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/child"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/profile"
)

// The tests of this file ask servers that are right with cmd/oncecheck: the README's program and the examples. Nothing
// fails, however slow the machine is.

// quick is what a normal run asks: what takes no time.
var quick = []string{"-only", "key/*,once/repeat,once/concurrent*,once/answer*,once/request-cut,replay/body,mismatch/body,mismatch/leak," +
	"mismatch/bytes,mismatch/null,mismatch/number-spelling,mismatch/status,scope/user*,inflight/answer,errors/5xx-not-stored"}

func TestOncecheck(t *testing.T) {
	t.Parallel()
	a := asker{build(t, "../../cmd/oncecheck")}
	t.Run("readme", a.askReadme)
	t.Run("chi-server", a.askChiServer)
	t.Run("journal-server", a.askJournalServer)
	t.Run("checkout of ACP", func(t *testing.T) { a.askCheckout(t, "acp", "/checkout_sessions") })
	t.Run("checkout of UCP", func(t *testing.T) { a.askCheckout(t, "ucp", "/checkout-sessions") })
	t.Run("payments of Stripe", a.askStripe)
}

// asker has the path of oncecheck.
type asker struct{ oncecheck string }

// The README's quick start works as described, in an empty module.
func (a asker) askReadme(t *testing.T) {
	t.Parallel()
	program := readmeProgram(t)
	program = replaceOnce(t, program, "w.WriteHeader", "if r.URL.Query().Has(\"slow\") {\ntime.Sleep(time.Second)\n}\nw.WriteHeader")
	addr := serve(t, buildInEmptyModule(t, program), redistest.Start(t).Addr()).Addr()
	// The program has one user and no route that lists payments. Only the test makes it slow.
	a.askRight(t, "http://"+addr+"/payments", "-H", "Authorization: Basic YW5uOnNlY3JldA==", "-d", `{"amount":{{n}}}`, "-slow", "slow")
}

func (a asker) askChiServer(t *testing.T) {
	t.Parallel()
	payments := "http://" + serve(t, build(t, "../../examples/chi-server")).Addr() + "/payments"
	a.askRight(t, payments, "-effects", payments)
}

// The server is killed while it works, and Redis is stopped.
func (a asker) askJournalServer(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	redis := redistest.Start(t)
	server := serve(t, build(t, "../../examples/more/journal-server"),
		"-redis", "redis://"+redis.Addr(), "-db", "sqlite:"+filepath.Join(t.TempDir(), "payments.db"))
	hooks := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/restart":
			if err := errors.Join(server.Crash(), server.Restart()); err != nil {
				t.Error(err)
			}
		case "/down":
			redis.Kill(t)
		case "/up":
			redis.Restart(t)
		}
	}))
	t.Cleanup(hooks.Close)
	hook := "curl -fsS " + hooks.URL
	payments := "http://" + server.Addr() + "/payments"
	a.askRight(t, payments, "-effects", payments, "-at-most-once",
		"-restart", hook+"/restart", "-store-down", hook+"/down", "-store-up", hook+"/up")
}

// askCheckout asks the example by the rules of a profile.
func (a asker) askCheckout(t *testing.T, name, path string) {
	t.Parallel()
	server := serve(t, build(t, "../../examples/more/checkout"),
		"-profile", name, "-db", "sqlite:"+filepath.Join(t.TempDir(), "shop.db"), "-op-timeout", "30s")
	sessions := "http://" + server.Addr() + path
	a.askRight(t, sessions, "-profile", name, "-H", "Authorization: Bearer ann", "-H2", "Authorization: Bearer bob", "-slow", "delay=1s",
		"-d", `{"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur","number":{{n}}}`, "-effects", sessions)
}

// askStripe asks a handler behind the middleware, which also fails before its payment when it is told to.
func (a asker) askStripe(t *testing.T) {
	t.Parallel()
	locker := lock.New(redistest.Start(t).Client(t), "stripe", lock.WithOpTimeout(30*time.Second))
	var payments atomic.Int64
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var order struct{ Amount float64 }
		err := json.NewDecoder(r.Body).Decode(&order)
		query := r.URL.Query()
		if query.Has("delay") {
			time.Sleep(time.Second)
		}
		switch {
		case err != nil:
			http.Error(w, "no order", http.StatusBadRequest)
		case query.Has("fail"):
			http.Error(w, "the bank does not answer", http.StatusInternalServerError)
		default:
			id := payments.Add(1)
			w.Header().Set("Location", fmt.Sprintf("/payments/%d", id))
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"id":%d}`, id)
		}
	})
	rules := profile.Stripe()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /payments", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, payments.Load()) })
	mux.Handle("POST /payments", middleware.Idempotency(locker, rules.Key(keyfunc.BasicUser()), rules.Option())(pay))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	url := server.URL + "/payments"
	a.askRight(t, url, "-profile", "stripe", "-effects", url, "-fail", "fail")
}

// askRight asks a server of payments, in a long run everything. All must hold that can be asked, and that is not little.
func (a asker) askRight(t *testing.T, url string, args ...string) {
	t.Helper()
	if !slices.Contains(args, "-H") {
		args = append(args, "-H", "Authorization: Basic YW5uOg==", "-H2", "Authorization: Basic Ym9iOg==",
			"-d", `{"amount":{{n}},"currency":"EUR"}`, "-slow", "delay=1s")
	}
	args = append(args, "-strict", "-timeout", "30s")
	if redistest.Rounds(true, false) {
		args = append(args, quick...)
	}
	report, err := exec.CommandContext(t.Context(), a.oncecheck, append(args, url)...).CombinedOutput()
	held := regexp.MustCompile(`(\d+) held`).FindSubmatch(report)
	if err != nil || held == nil || number(string(held[1])) < 15 {
		t.Errorf("want 15 checks that hold, and none that fails: %v\n%s", err, report)
	}
}

// build builds the program in a folder.
func build(t *testing.T, folder string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), filepath.Base(folder))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	cmd.Dir = folder
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return binary
}

// serve runs a program that listens at the address after -addr.
func serve(t *testing.T, binary string, args ...string) *child.Server {
	t.Helper()
	s := &child.Server{Name: binary, Dir: t.TempDir(), OnCrash: syscall.SIGKILL}
	s.Command = func() *exec.Cmd {
		cmd := exec.Command(binary, append([]string{"-addr", s.Addr()}, args...)...)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "REDIS_URL=") || strings.HasPrefix(v, "DATABASE_URL=")
		})
		return cmd
	}
	s.Ready = func(int) bool {
		conn, err := net.Dial("tcp", s.Addr())
		return err == nil && conn.Close() == nil
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Crash() })
	return s
}
