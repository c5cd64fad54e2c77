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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/child"
	"github.com/onceguard/onceguard/internal/redistest"
)

// The README's quick start works as described, in an empty module.
func TestReadmeQuickStart(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	cmd := exec.Command(buildInEmptyModule(t, readmeProgram(t, redistest.Start(t).Addr(), addr)))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitServer(t, addr, ended)

	ask := func(key string) paid {
		t.Helper()
		answer, err := pay(t, http.DefaultClient, "http://"+addr, key)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	first, second := ask("k1"), ask("k1")
	switch {
	case first.status != http.StatusCreated || first.replayed, second.status != http.StatusCreated || !second.replayed:
		t.Errorf("got %+v, then %+v; want a 201 and its replay", first, second)
	case first.body != second.body:
		t.Errorf("replay %s, want %s", second.body, first.body)
	}
	if other := ask("k2"); other.body == first.body {
		t.Error("another key got the same payment")
	}
	if keyless := ask(""); keyless.status != http.StatusBadRequest {
		t.Errorf("without a key: %d, want 400", keyless.status)
	}
}

// readPage returns a file by its path from the root of the module.
func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goBlocks returns a page's blocks of Go.
func goBlocks(page string) (blocks []string) {
	for _, block := range strings.Split(page, "```go\n")[1:] {
		code, _, _ := strings.Cut(block, "```")
		blocks = append(blocks, code)
	}
	return blocks
}

// readmeProgram returns the README's program, which is its only block of Go, with these addresses instead of its own, and
// with more time for Redis, as a busy machine needs.
func readmeProgram(t *testing.T, redis, listen string) string {
	t.Helper()
	blocks := goBlocks(readPage(t, "README.md"))
	if len(blocks) != 1 || !strings.HasPrefix(blocks[0], "package main") {
		t.Fatalf("%d blocks of Go, want one, a program", len(blocks))
	}
	program := replaceOnce(t, blocks[0], `"127.0.0.1:7379"`, strconv.Quote(redis))
	program = replaceOnce(t, program, `"127.0.0.1:8080"`, strconv.Quote(listen))
	return replaceOnce(t, program, `"payments-api")`, `"payments-api", lock.WithOpTimeout(10e9))`)
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

// freeAddr returns a loopback address on which nobody listens, and that the kernel gives to nobody who asks for any port.
func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
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

// pay sends the request of the README's curl lines once. Without GetBody, the transport cannot repeat it.
func pay(t *testing.T, client *http.Client, url, key string) (paid, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/payments", strings.NewReader(`{"amount":1250}`))
	if err != nil {
		return paid{}, err
	}
	r.GetBody = nil
	r.SetBasicAuth("ann", "secret")
	if key != "" {
		r.Header.Set("Idempotency-Key", strconv.Quote(key))
	}
	res, err := client.Do(r)
	if err != nil {
		return paid{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return paid{res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", string(body)}, err
}

// Every line of the pages' Go is a line of the Examples. (The pages of other modules have tests there.)
func TestPagesAreCompiled(t *testing.T) {
	t.Parallel()
	compiled := map[string]bool{}
	for _, file := range []string{"middleware/example_test.go", "sqljournal/example_test.go",
		"sqljournal/example_provider_test.go", "sqljournal/example_mysql_test.go", "sqljournal/example_oncetest_test.go", "example_test.go", "once/example_test.go", "profile/example_test.go"} {
		for line := range strings.Lines(readPage(t, file)) {
			compiled[strings.TrimSpace(line)] = true
		}
	}
	blocks := 0
	for _, page := range []string{"docs/doors.md", "docs/guarantees.md", "docs/journal.md", "docs/operate.md", "docs/profiles.md"} {
		for _, block := range goBlocks(readPage(t, page)) {
			blocks++
			for line := range strings.Lines(block) {
				if line = strings.TrimSpace(line); !compiled[line] {
					t.Errorf("%s: not in the Examples: %s", page, line)
				}
			}
		}
	}
	if blocks != 6 {
		t.Errorf("%d blocks of Go, want 6", blocks)
	}
	for line := range strings.Lines(readPage(t, "doc.go")) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok && !compiled[strings.TrimSpace(code)] {
			t.Errorf("doc.go: not in the Example: %s", code)
		}
	}
}

// Every test that a page names exists.
func TestPagesNameTests(t *testing.T) {
	t.Parallel()
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
	named := 0
	for _, page := range pages(t) {
		if page == "CONTRIBUTING.md" { // it has patterns for -run
			continue
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(readPage(t, page), -1) {
			named++
			if !tests[name] {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
	if named < 30 {
		t.Errorf("%d tests are named, want more", named)
	}
}
