package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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

// replaceOnce replaces what the page has for another API.
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
