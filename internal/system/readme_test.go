package system_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

// The README's quick start works as described, in an empty module. The test replaces its two addresses by free ones.
func TestReadmeQuickStart(t *testing.T) {
	t.Parallel()
	program, _ := readmeBlocks(t)
	redis, addr := redistest.Start(t), freeAddr(t)
	program = replaceOnce(t, program, `"127.0.0.1:6379"`, fmt.Sprintf("%q", redis.Addr()))
	program = replaceOnce(t, program, `"127.0.0.1:8080"`, fmt.Sprintf("%q", addr))
	binary := buildInEmptyModule(t, program)

	cmd := exec.Command(binary)
	output := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitServer(t, addr, ended)

	first, second := payAt(t, addr, "k1"), payAt(t, addr, "k1")
	switch {
	case first.status != http.StatusCreated || first.replayed, second.status != http.StatusCreated || !second.replayed:
		t.Errorf("got %+v, then %+v; want a 201 and its replay", first, second)
	case first.body != second.body:
		t.Errorf("replay %s, want %s", second.body, first.body)
	}
	if other := payAt(t, addr, "k2"); other.body == first.body {
		t.Error("another key got the same payment")
	}
	if keyless := payAt(t, addr, ""); keyless.status != http.StatusBadRequest {
		t.Errorf("without a key: %d, want 400", keyless.status)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil || output.Len() > 0 {
			t.Errorf("the program ended with %v and printed %q", err, output)
		}
	case <-time.After(30 * time.Second):
		t.Error("the program does not end after SIGTERM")
	}
}

// readmeBlocks returns the README's blocks of Go: the quick start and the others.
func readmeBlocks(t *testing.T) (program string, others []string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(readme), "```go\n")[1:] {
		code, _, _ := strings.Cut(block, "```")
		if strings.HasPrefix(code, "package main") {
			program = code
			continue
		}
		others = append(others, code)
	}
	if program == "" || len(others) != 2 {
		t.Fatalf("a program of %d bytes and %d more blocks of Go, want one and two", len(program), len(others))
	}
	return program, others
}

func replaceOnce(t *testing.T, s, old, with string) string {
	t.Helper()
	if n := strings.Count(s, old); n != 1 {
		t.Fatalf("%s occurs %d times, want once", old, n)
	}
	return strings.Replace(s, old, with, 1)
}

// buildInEmptyModule builds the program in a module that requires this one, without downloads.
func buildInEmptyModule(t *testing.T, program string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	const self = "github.com/onceguard/onceguard"
	write("main.go", []byte(program))
	write("go.sum", sum)
	write("go.mod", []byte(replaceOnce(t, string(mod), "module "+self+"\n", "module shop\n")+
		fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", self, self, here)))
	build := exec.Command("go", "build", "-mod=mod", "-o", "shop", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return filepath.Join(dir, "shop")
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// awaitServer returns when the program listens.
func awaitServer(t *testing.T, addr string, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("the program has ended: %v", err)
		case <-ctx.Done():
			t.Fatal("the program does not listen")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

type paid struct {
	status   int
	replayed bool
	body     string
}

// payAt sends the request of the README's curl line.
func payAt(t *testing.T, addr, key string) paid {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/payments", strings.NewReader(`{"amount":1250}`))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("ann", "secret")
	if key != "" {
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return paid{res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", string(body)}
}

// Every line of the README's other code is a line of the Examples.
func TestReadmeIsCompiled(t *testing.T) {
	t.Parallel()
	compiled := map[string]bool{}
	for _, file := range []string{"../../middleware/example_test.go", "../../sqljournal/example_test.go"} {
		examples, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(examples)) {
			compiled[strings.TrimSpace(line)] = true
		}
	}
	_, blocks := readmeBlocks(t)
	for _, block := range blocks {
		for line := range strings.Lines(block) {
			if line = strings.TrimSpace(line); !compiled[line] {
				t.Errorf("not in the Examples: %s", line)
			}
		}
	}
}

// Every test that these pages name exists.
func TestGuaranteesNameTests(t *testing.T) {
	t.Parallel()
	var doc []byte
	for _, page := range []string{"guarantees.md", "rollout.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		doc = append(doc, text...)
	}
	tests := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(code, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(string(doc), -1) {
		if !tests[name] {
			t.Errorf("there is no %s", name)
		}
	}
}
