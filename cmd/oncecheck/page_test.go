package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
)

const page = "../../docs/check.md"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// build builds the program in a folder.
func build(t *testing.T, folder string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	cmd.Dir = folder
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return binary
}

func replaceOnce(t *testing.T, s, old, with string) string {
	t.Helper()
	if n := strings.Count(s, old); n != 1 {
		t.Fatalf("%s occurs %d times, want once", old, n)
	}
	return strings.Replace(s, old, with, 1)
}

// freeAddr returns an address on which nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// The shell of the CI job in docs/check.md works: the test gives it another API, and the program of this tree.
func TestCheckPageJob(t *testing.T) {
	checktest.MustHave(t, "bash", "curl")
	t.Parallel()
	_, script, ok := strings.Cut(read(t, page), "      - run: |\n")
	if !ok {
		t.Fatal("the page has no job")
	}
	script, _, _ = strings.Cut(script, "```")
	script = replaceOnce(t, script, "go run github.com/onceguard/onceguard/cmd/oncecheck@latest", build(t, "."))
	if checktest.Rounds(1, 2) == 1 {
		script = replaceOnce(t, script, "-expect", "-only once/repeat,key/quoted,replay/body -expect")
	}
	dir, addr := t.TempDir(), freeAddr(t)
	job := exec.CommandContext(t.Context(), "bash", "-e", "-c", "trap 'kill $!' EXIT\n"+script)
	job.Dir = dir
	job.Env = append(os.Environ(), "START=exec "+build(t, "../../examples/chi-server")+" -addr "+addr, "API=http://"+addr+"/payments",
		"AUTH=Basic YW5uOg==", "COUNT=curl -fsS -u ann: http://"+addr+"/payments", "REDIS_URL=", "GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary.md"))
	if output, err := job.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for name, want := range map[string]string{"oncecheck.xml": `failures="0"`, "summary.md": "all that was asked holds"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

// The page's line that writes the known failures takes their ids out of a table.
func TestCheckPageKnownFailures(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^oncecheck -verbose \.\.\. \| (awk .*) > oncecheck.known$`).FindStringSubmatch(read(t, page))
	if line == nil {
		t.Fatal("the page has no such line")
	}
	filter := exec.CommandContext(t.Context(), "sh", "-c", line[1])
	filter.Stdin = strings.NewReader(read(t, "internal/report/testdata/report.verbose.text"))
	if out, err := filter.Output(); err != nil || string(out) != "once/concurrent\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// The page is a page, not a book.
func TestCheckPageIsShort(t *testing.T) {
	t.Parallel()
	if words := len(strings.Fields(read(t, page))); words > 690 {
		t.Errorf("%d words, want 690", words)
	}
}
