package composetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/child"
	"github.com/onceguard/onceguard/internal/pgtest"
	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const patience = 2 * time.Minute // bounds every wait: only a failing test waits this long

// The services of compose.yml, with its commands and the files that it mounts, but other addresses: a payment is counted by
// Prometheus, which has all alerts.
func TestServicesTogether(t *testing.T) {
	t.Parallel()
	prometheus := program(t, "prometheus")
	c := readComposition(t)
	redis := redistest.Start(t, c.Services["redis"].Command[1:]...)
	here := strings.NewReplacer("redis:6379", redis.Addr(), "onceguard:onceguard@postgres:5432/payments", startPostgreSQL(t), "0.0.0.0:8080", "127.0.0.1:0")

	demo := "http://" + startProgram(t, c.Services["demo"], here)
	payments := startProgram(t, c.Services["payments"], here)
	if status, page := get(t, demo); status != http.StatusOK || !strings.Contains(page, "<html") {
		t.Errorf("the demo: %d %s", status, page)
	}
	pay(t, "http://"+payments)

	monitor := startPrometheus(t, prometheus, c.Services["prometheus"], payments)
	await(t, "a scrape", func() bool {
		return strings.Contains(ask(t, monitor+"/api/v1/query?query="+url.QueryEscape(`onceguard_requests_total{outcome="executed",locker="journal-server"}`)), `"1"]`)
	})
	alerts := strings.Count(string(read(t, "contrib/promonce/alerts.yml")), "- alert:")
	if got := strings.Count(ask(t, monitor+"/api/v1/rules?type=alert"), `"type":"alerting"`); got != alerts || alerts == 0 {
		t.Errorf("Prometheus has %d alerts, want %d", got, alerts)
	}
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is required: %v", name, err)
	default:
		t.Skipf("left out: needs %s", name)
	}
	return path
}

// startPostgreSQL returns what stands in a URL behind the scheme.
func startPostgreSQL(t *testing.T) string {
	t.Helper()
	if _, err := pgtest.Find(); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("left out: %v", err)
	}
	s, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return strings.TrimPrefix(s.URL(s.Addr(), "public"), "postgres://")
}

// startProgram builds what "go run" runs, starts it, and returns the address that its log names.
func startProgram(t *testing.T, s service, here *strings.Replacer) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", binary, s.Command[2])
	build.Dir = filepath.Join(root, s.source(s.WorkingDir))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", s.Command, err, out)
	}
	var args []string
	for _, arg := range s.Command[3:] {
		args = append(args, here.Replace(arg))
	}
	cmd, log := exec.Command(binary, args...), filepath.Join(t.TempDir(), "log")
	run(t, cmd, log)
	var addr string
	await(t, "a program that listens", func() bool {
		found := regexp.MustCompile(`msg=listening addr=(\S+)`).FindStringSubmatch(logged(t, log))
		if found != nil {
			addr = found[1]
		}
		return found != nil
	})
	return addr
}

// startPrometheus runs it with the files at the places where the image has them, and returns its URL.
func startPrometheus(t *testing.T, binary string, s service, target string) string {
	t.Helper()
	dir := t.TempDir()
	for _, volume := range s.Volumes {
		from, to, _ := strings.Cut(strings.TrimSuffix(volume, ":ro"), ":")
		text := strings.ReplaceAll(string(read(t, from)), "payments:8080", target)
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(to)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	run(t, exec.Command(binary, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr), filepath.Join(dir, "log"))
	await(t, "Prometheus", func() bool {
		response, err := http.Get("http://" + addr + "/-/ready")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return "http://" + addr
}

// run starts a process, which ends with the test.
func run(t *testing.T, cmd *exec.Cmd, log string) {
	t.Helper()
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	cmd.Stdout, cmd.Stderr = file, file
	p, err := child.Start(cmd, nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s\n%s", cmd, logged(t, log))
		}
	})
}

func logged(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for !happened() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-poll.C:
		}
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// ask returns the answer of Prometheus's API, as JSON without spaces.
func ask(t *testing.T, url string) string {
	t.Helper()
	status, body := get(t, url)
	var answer any
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s", url, status, body)
	}
	compact, _ := json.Marshal(answer)
	return string(compact)
}

func pay(t *testing.T, url string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url+"/payments", strings.NewReader(`{"amount":1250,"currency":"EUR"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", `"k1"`)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("got %d, want 201", response.StatusCode)
	}
}
