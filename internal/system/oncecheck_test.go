package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
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
		"payments of ACP":    askPayments("acp", profile.ACP()),
		"payments of Stripe": askPayments("stripe", profile.Stripe(), "key/missing", "key/missing-not-run"),
	} {
		t.Run(name, func(t *testing.T) { ask(t, asker{oncecheck, chiServer}) })
	}
}

// asker has the paths of the programs that several tests run.
type asker struct{ oncecheck, chiServer string }

func askReadme(t *testing.T, a asker) {
	t.Parallel()
	redis, addr := redistest.Start(t), freeAddr(t)
	program := replaceOnce(t, readmeProgram(t, redis.Addr(), addr), "w.WriteHeader", "if r.URL.Query().Has(\"slow\") {\ntime.Sleep(time.Second)\n}\nw.WriteHeader")
	server := &service{binary: buildInEmptyModule(t, program), addr: addr}
	server.start(t)
	// The program has one user and no route that lists payments. Only the test makes it slow.
	a.askRight(t, "http://"+addr+"/payments", append(unasked, "key/refused-not-run", "key/missing-not-run", "once/client-leaves",
		"once/request-cut", "once/instances*", "replay/location", "replay/error", "mismatch/not-run",
		"scope/*", "errors/validation", "store/*", "crash/*"),
		"-H", "Authorization: Basic YW5uOnNlY3JldA==", "-d", `{"amount":{{n}}}`, "-slow", "slow")
}

func askChiServer(t *testing.T, a asker) {
	t.Parallel()
	server := &service{binary: a.chiServer, addr: freeAddr(t)}
	server.args = []string{"-addr", server.addr}
	server.start(t)
	payments := "http://" + server.addr + "/payments"
	// It lists no more than the latest 1,000 payments.
	a.askRight(t, payments, append(unasked, "once/instances*", "store/*", "crash/*"), "-effects", payments)
}

// Two instances share a Redis, and each lists what it has done.
func askTwoInstances(t *testing.T, a asker) {
	t.Parallel()
	redis := redistest.Start(t)
	var urls []string
	for range 2 {
		server := &service{binary: a.chiServer, addr: freeAddr(t)}
		server.args = []string{"-addr", server.addr, "-redis", "redis://" + redis.Addr()}
		server.start(t)
		urls = append(urls, "http://"+server.addr+"/payments")
	}
	count := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { countPayments(t, w, r, urls) }))
	t.Cleanup(count.Close)
	a.askRight(t, urls[0], append(unasked, "store/*", "crash/*"), "-effects", count.URL, "-also", urls[1])
}

// countPayments answers with the number of payments in the lists of all URLs. It asks with the credentials of the request.
func countPayments(t *testing.T, w http.ResponseWriter, r *http.Request, urls []string) {
	n := 0
	for _, url := range urls {
		ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		ask.Header.Set("Authorization", r.Header.Get("Authorization"))
		response, err := http.DefaultClient.Do(ask)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		var payments []json.RawMessage
		err = json.NewDecoder(response.Body).Decode(&payments)
		_ = response.Body.Close()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		n += len(payments)
	}
	fmt.Fprint(w, n)
}

// The server is killed while it works, and Redis is stopped.
func askJournalServer(t *testing.T, a asker) {
	redistest.Long(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("left out: needs curl: ", err)
	}
	t.Parallel()
	redis := redistest.Start(t)
	server := &service{binary: build(t, "../../examples/more/journal-server"), addr: freeAddr(t)}
	server.args = []string{"-addr", server.addr, "-redis", "redis://" + redis.Addr(), "-db", "sqlite:" + filepath.Join(t.TempDir(), "payments.db")}
	hooks := serveHooks(t, map[string]func(){
		"/restart": func() { server.restart(t) },
		"/down":    func() { redis.Kill(t) },
		"/up":      func() { redis.Restart(t) },
	})
	server.start(t)
	payments := "http://" + server.addr + "/payments"
	a.askRight(t, payments, append(unasked, "once/instances*"), "-effects", payments, "-at-most-once",
		"-restart", hooks("/restart"), "-store-down", hooks("/down"), "-store-up", hooks("/up"))
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

// service is a process that listens, and can be killed and started again.
type service struct {
	binary, addr string
	args         []string

	cmd   *exec.Cmd
	ended chan error
}

// start starts the process and returns when it listens.
func (s *service) start(t *testing.T) {
	t.Helper()
	s.cmd, s.ended = exec.Command(s.binary, s.args...), make(chan error, 1)
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "REDIS_URL=") || strings.HasPrefix(v, "DATABASE_URL=")
	})
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, ended := s.cmd, s.ended
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitServer(t, s.addr, ended)
}

// restart kills the process if it runs, waits for its end and starts it again.
func (s *service) restart(t *testing.T) {
	t.Helper()
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	s.start(t)
}

// serveHooks runs the functions when a command asks, and returns the command of each.
func serveHooks(t *testing.T, hooks map[string]func()) func(path string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hooks[r.URL.Path]() }))
	t.Cleanup(server.Close)
	return func(path string) string { return "curl -fsS " + server.URL + path }
}
