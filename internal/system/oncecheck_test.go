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
var quick = []string{"-only", "key/*,once/repeat,once/concurrent*,once/instances*,once/answer*,once/request-cut,once/sent*,replay/body,mismatch/body,mismatch/leak," +
	"mismatch/bytes,mismatch/null,mismatch/number-spelling,mismatch/status,scope/user*,inflight/answer,errors/5xx-not-stored"}

// unasked are the checks that no server here can be asked: it has no such responses, or no such route.
var unasked = []string{
	"once/http2", "once/samples", "replay/body-binary", "replay/body-empty", "replay/body-large", "replay/redirect", "replay/headers-multiple",
	"replay/trailers", "replay/no-cookie", "replay/encoding", "scope/route", "errors/failed-once", "errors/failed-answered",
	"errors/failed-not-success", "cors/allowed", "cors/exposed",
}

func TestOncecheck(t *testing.T) {
	t.Parallel()
	oncecheck, chiServer := build(t, "../../cmd/oncecheck"), build(t, "../../examples/chi-server")
	for name, ask := range map[string]func(*testing.T, asker){
		"readme": askReadme, "chi-server": askChiServer, "two instances": askTwoInstances, "journal-server": askJournalServer,
		"checkout of ACP":    askCheckout("acp", "/checkout_sessions"),
		"checkout of UCP":    askCheckout("ucp", "/checkout-sessions", "key/missing", "key/missing-not-run"),
		"payments of Stripe": askStripe,
	} {
		t.Run(name, func(t *testing.T) { ask(t, asker{oncecheck, chiServer}) })
	}
}

// asker has the paths of the programs that several tests run.
type asker struct{ oncecheck, chiServer string }

// The README's quick start works as described, in an empty module.
func askReadme(t *testing.T, a asker) {
	t.Parallel()
	program := readmeProgram(t)
	program = replaceOnce(t, program, "w.WriteHeader", "if r.URL.Query().Has(\"slow\") {\ntime.Sleep(time.Second)\n}\nw.WriteHeader")
	addr := serve(t, buildInEmptyModule(t, program), redistest.Start(t).Addr()).Addr()
	// The program has one user and no route that lists payments. Only the test makes it slow.
	a.askRight(t, "http://"+addr+"/payments", append(unasked, "key/refused-not-run", "key/missing-not-run", "once/client-leaves",
		"once/request-cut", "once/instances*", "replay/location", "replay/error", "mismatch/not-run",
		"scope/*", "errors/validation", "store/*", "crash/*"),
		"-H", "Authorization: Basic YW5uOnNlY3JldA==", "-d", `{"amount":{{n}}}`, "-slow", "slow")
}

func askChiServer(t *testing.T, a asker) {
	t.Parallel()
	payments := "http://" + serve(t, a.chiServer).Addr() + "/payments"
	// It lists no more than the latest 1,000 payments.
	a.askRight(t, payments, append(unasked, "once/instances*", "store/*", "crash/*"), "-effects", payments)
}

// Two instances share a Redis, and each lists what it has done.
func askTwoInstances(t *testing.T, a asker) {
	t.Parallel()
	redis := redistest.Start(t)
	var urls []string
	for range 2 {
		urls = append(urls, "http://"+serve(t, a.chiServer, "-redis", "redis://"+redis.Addr()).Addr()+"/payments")
	}
	count := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for _, url := range urls {
			list, err := listPayments(r, url)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			n += len(list)
		}
		fmt.Fprint(w, n)
	}))
	t.Cleanup(count.Close)
	a.askRight(t, urls[0], append(unasked, "store/*", "crash/*"), "-effects", count.URL, "-also", urls[1])
}

// listPayments asks an instance with the credentials of a request.
func listPayments(r *http.Request, url string) (list []json.RawMessage, err error) {
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Authorization", r.Header.Get("Authorization"))
	response, err := http.DefaultClient.Do(ask)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return list, json.NewDecoder(response.Body).Decode(&list)
}

// The server is killed while it works, and Redis is stopped.
func askJournalServer(t *testing.T, a asker) {
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
	a.askRight(t, payments, append(unasked, "once/instances*"), "-effects", payments, "-at-most-once",
		"-restart", hook+"/restart", "-store-down", hook+"/down", "-store-up", hook+"/up")
}

// askCheckout asks the example by the rules of a profile.
func askCheckout(name, path string, optional ...string) func(*testing.T, asker) {
	return func(t *testing.T, a asker) {
		t.Parallel()
		server := serve(t, build(t, "../../examples/more/checkout"),
			"-profile", name, "-db", "sqlite:"+filepath.Join(t.TempDir(), "shop.db"), "-op-timeout", "30s")
		sessions := "http://" + server.Addr() + path
		a.askRight(t, sessions, slices.Concat(unasked, optional, []string{"once/instances*", "errors/5xx-not-stored", "store/*", "crash/*"}),
			"-profile", name, "-H", "Authorization: Bearer ann", "-H2", "Authorization: Bearer bob", "-slow", "delay=1s",
			"-d", `{"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur","number":{{n}}}`, "-effects", sessions)
	}
}

// askStripe asks a handler behind the middleware, which also fails before its payment when it is told to.
func askStripe(t *testing.T, a asker) {
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
	// What fails is asked here.
	asked := slices.DeleteFunc(slices.Clone(unasked), func(id string) bool { return strings.HasPrefix(id, "errors/") })
	a.askRight(t, url, append(asked, "key/missing", "key/missing-not-run", "once/instances*", "store/*", "crash/*"),
		"-profile", "stripe", "-effects", url, "-fail", "fail")
}

// askRight asks a server of payments, and wants all to hold that can be asked: in a long run everything.
func (a asker) askRight(t *testing.T, url string, unasked []string, args ...string) {
	t.Helper()
	if !slices.Contains(args, "-H") {
		args = append(args, "-H", "Authorization: Basic YW5uOg==", "-H2", "Authorization: Basic Ym9iOg==",
			"-d", `{"amount":{{n}},"currency":"EUR"}`, "-slow", "delay=1s")
	}
	args = append(args, "-json", "-strict", "-timeout", "30s")
	if redistest.Rounds(1, 2) == 1 {
		args = append(args, quick...)
	}
	ask := exec.CommandContext(t.Context(), a.oncecheck, append(args, url)...)
	var stderr strings.Builder
	ask.Stderr = &stderr
	report, err := ask.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
	var got struct {
		Checks []struct{ ID, Verdict, Sentence, Level string }
	}
	if err := json.Unmarshal(report, &got); err != nil {
		t.Fatalf("%v\n%s", err, report)
	}
	for _, c := range got.Checks {
		mayBeUnasked := slices.ContainsFunc(unasked, func(pattern string) bool {
			prefix, isPrefix := strings.CutSuffix(pattern, "*")
			return c.ID == pattern || isPrefix && strings.HasPrefix(c.ID, prefix)
		})
		isBusy := strings.Contains(c.Sentence, "under way at the same time") // the machine was, so two requests did not overlap
		switch {
		case c.Verdict == "held" && mayBeUnasked:
			t.Errorf("%s held, and was not to be asked", c.ID)
		case c.Verdict == "not asked" && !mayBeUnasked && !isBusy:
			t.Errorf("%s was not asked: %s", c.ID, c.Sentence)
		case c.Verdict == "failed" && c.ID != "mismatch/whitespace": // which is advice that the examples do not take
			t.Errorf("%s failed: %s", c.ID, c.Sentence)
		}
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
