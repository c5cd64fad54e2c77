// Package composetest tests compose.yml and the files that it mounts: what they name exists, and the services that can run
// here without containers do what the file promises.
package composetest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/onceguard/onceguard/internal/pgtest"
	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// root is the top of the repository.
const root = "../../../.."

type service struct {
	WorkingDir              string `yaml:"working_dir"`
	Command, Ports, Volumes []string
}

// services returns those of compose.yml.
func services(t *testing.T) map[string]service {
	t.Helper()
	var c struct{ Services map[string]service }
	if err := yaml.Unmarshal([]byte(read(t, "compose.yml")), &c); err != nil {
		t.Fatal(err)
	}
	return c.Services
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Files that are mounted exist, and an address is that of a service, with the port on which it listens.
func TestFiles(t *testing.T) {
	t.Parallel()
	listens := map[string]string{
		"redis": "6379", "postgres": "5432", "demo": "8080", "payments": "8080", "prometheus": "9090", "grafana": "3000",
	}
	all := services(t)
	for name, s := range all {
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") || !strings.HasSuffix(port, ":"+listens[name]) {
				t.Errorf("%s publishes %s, and listens on %q", name, port, listens[name])
			}
		}
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, err := os.Stat(filepath.Join(root, from)); strings.HasPrefix(from, ".") && (err != nil || !strings.HasSuffix(volume, ":ro")) {
				t.Errorf("%s mounts %s: %v; want what is there, and :ro", name, volume, err)
			}
		}
	}
	anAddress := regexp.MustCompile(`([a-z]+):(\d{4})\b`)
	for _, file := range []string{"compose.yml", "examples/compose/prometheus.yml", "examples/compose/datasource.yml"} {
		found := anAddress.FindAllStringSubmatch(read(t, file), -1)
		for _, address := range found {
			if listens[address[1]] != address[2] {
				t.Errorf("%s: nothing listens on %s", file, address[0])
			}
		}
		if len(found) == 0 {
			t.Errorf("%s names no service", file)
		}
	}

	// Grafana reads the folder into which the dashboard is mounted.
	folder := regexp.MustCompile(`path: (\S+)`).FindStringSubmatch(read(t, "examples/compose/dashboards.yml"))[1]
	if mounted := strings.Join(all["grafana"].Volumes, " "); !strings.Contains(mounted, "contrib/promonce/dashboard.json:"+folder+"/") {
		t.Errorf("Grafana reads %s, and has %s", folder, mounted)
	}
	var board struct{ UID string }
	if err := json.Unmarshal([]byte(read(t, "contrib/promonce/dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(t, "compose.yml"), ":3000/d/"+board.UID+" ") {
		t.Errorf("compose.yml does not say where the dashboard %s is", board.UID)
	}
}

// The services of compose.yml, with its commands and the files that it mounts, but other addresses: a payment is counted by
// Prometheus, which has all alerts.
func TestServicesTogether(t *testing.T) {
	t.Parallel()
	prometheus, err := exec.LookPath("prometheus")
	if err == nil {
		_, err = pgtest.Find()
	}
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("left out: %v", err)
	}
	postgres, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = postgres.Close() })
	all := services(t)
	redis := redistest.Start(t, all["redis"].Command[1:]...)
	here := strings.NewReplacer("redis:6379", redis.Addr(), "0.0.0.0:8080", "127.0.0.1:0",
		"postgres://onceguard:onceguard@postgres:5432/payments", postgres.URL(postgres.Addr(), "public"))

	if page := get(t, start(t, build(t, all["demo"], here))); !strings.Contains(page, "<html") {
		t.Errorf("the demo: %s", page)
	}
	payments := start(t, build(t, all["payments"], here))
	r, _ := http.NewRequest(http.MethodPost, payments+"/payments", strings.NewReader(`{"amount":1250,"currency":"EUR"}`))
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", "k1")
	res, err := http.DefaultClient.Do(r)
	if err != nil || res.StatusCode != http.StatusCreated {
		t.Fatalf("a payment: %v, %v", res, err)
	}
	_ = res.Body.Close()

	dir := t.TempDir()
	for _, volume := range all["prometheus"].Volumes {
		from, to, _ := strings.Cut(strings.TrimSuffix(volume, ":ro"), ":")
		text := strings.ReplaceAll(read(t, from), "payments:8080", strings.TrimPrefix(payments, "http://"))
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(to)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	monitor := start(t, exec.Command(prometheus, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0"))
	query := "/api/v1/query?query=" + url.QueryEscape(`onceguard_requests_total{outcome="executed",locker="journal-server"}`)
	for !strings.Contains(get(t, monitor+query), `"1"]`) { // until go test's own timeout
		time.Sleep(100 * time.Millisecond)
	}
	alerts := strings.Count(read(t, "contrib/promonce/alerts.yml"), "- alert:")
	if got := strings.Count(get(t, monitor+"/api/v1/rules?type=alert"), `"type":"alerting"`); got != alerts || alerts == 0 {
		t.Errorf("Prometheus has %d alerts, want %d", got, alerts)
	}
}

// build builds what "go run" of the service runs.
func build(t *testing.T, s service, here *strings.Replacer) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), "program"), s.Command[2])
	cmd.Dir = filepath.Join(root, strings.TrimPrefix(s.WorkingDir, "/onceguard"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", s.Command, err, out)
	}
	var args []string
	for _, arg := range s.Command[3:] {
		args = append(args, here.Replace(arg))
	}
	return exec.Command(cmd.Args[3], args...)
}

var listening = regexp.MustCompile(`[Ll]istening.* addr(?:ess)?=(127\.0\.0\.1:[1-9]\d*)`)

// start starts a program, which the end of the test kills, and returns its URL.
func start(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	log, piece := "", make([]byte, 1<<16)
	for listening.FindStringSubmatch(log) == nil {
		n, err := stderr.Read(piece)
		if log += string(piece[:n]); err != nil {
			t.Fatalf("%s: %s", cmd, log)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return "http://" + listening.FindStringSubmatch(log)[1]
}

func get(t *testing.T, url string) string {
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
	return string(text)
}
