package promonce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"
)

// patience bounds every wait. Only a failing test waits this long.
const patience = 2 * time.Minute

// prometheusServer is a real server on loopback.
type prometheusServer struct {
	url    string
	client *http.Client
}

// faster are the rules with windows of seconds in the place of minutes, and without a wait before an alert fires.
func faster(rules []byte) []byte {
	rules = regexp.MustCompile(`\b5m\]`).ReplaceAll(rules, []byte("10s]"))
	rules = regexp.MustCompile(`offset 5m\b`).ReplaceAll(rules, []byte("offset 10s"))
	return regexp.MustCompile(`(?m)^( +)for: \d+m$`).ReplaceAll(rules, []byte("${1}for: 0s"))
}

// startPrometheus runs a server that scrapes the target twice a second, with alerts.yml made faster. The end of the
// test ends it.
func startPrometheus(t *testing.T, target string, args ...string) *prometheusServer {
	t.Helper()
	path, dir := program(t, "prometheus"), t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [alerts.yml]
scrape_configs: [{job_name: shop, static_configs: [{targets: [%q]}]}]
`, target)
	for name, content := range map[string][]byte{"alerts.yml": faster(readFile(t, "alerts.yml")), "prometheus.yml": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if s := launch(t, exec.Command(path, append([]string{
			"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
			"--log.level=warn",
		}, args...)...)); s != nil {
			return s
		}
	}
	t.Fatal("Prometheus does not start")
	return nil
}

// launch returns nil if the server ended at once, for example because another process has taken its port.
func launch(t *testing.T, cmd *exec.Cmd) *prometheusServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	cmd.Args = append(cmd.Args, "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stderr, os.Stderr, diesWithParent()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // its end would end the server
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	s := &prometheusServer{"http://" + addr, &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}}
	stop := func() {
		s.client.CloseIdleConnections()
		_ = cmd.Process.Kill()
		<-ended
	}
	if !s.ready(ended) {
		stop()
		return nil
	}
	t.Cleanup(stop)
	return s
}

// ready waits until the server answers, and returns false if it has ended.
func (s *prometheusServer) ready(ended chan struct{}) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		case <-poll.C:
		}
		response, err := s.client.Get(s.url + "/-/ready")
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return true
		}
	}
}

// sample is a series with its value.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query returns what the expression gives now.
func (s *prometheusServer) query(t *testing.T, expr string) []sample {
	t.Helper()
	response, err := s.client.Get(s.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v %s", expr, err, answer.Error)
	}
	return answer.Data.Result
}

// await returns when the expression has a result or, if some is false, has none.
func (s *prometheusServer) await(t *testing.T, expr string, some bool) {
	t.Helper()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(patience)
	for {
		found := s.query(t, expr)
		if (len(found) > 0) == some {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("after %v: %s has %v, want some: %v", patience, expr, found, some)
		}
	}
}

// fired waits for alerts: it is enough that each has fired at some time.
func (s *prometheusServer) fired(t *testing.T, alerts ...string) {
	t.Helper()
	for _, a := range alerts {
		s.await(t, fmt.Sprintf(`max_over_time(ALERTS{alertname="Onceguard%s", alertstate="firing"}[1h])`, a), true)
	}
}
