package system_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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

// readmeProgram returns the README's program, which is its only block of Go. It listens at its second argument, with the
// Redis at its third one, and gives Redis more time, as a busy machine needs.
func readmeProgram(t *testing.T) string {
	t.Helper()
	blocks := goBlocks(readPage(t, "README.md"))
	if len(blocks) != 1 || !strings.HasPrefix(blocks[0], "package main") {
		t.Fatalf("%d blocks of Go, want one, a program", len(blocks))
	}
	program := replaceOnce(t, blocks[0], `"log"`, "\"log\"\n\"os\"")
	program = replaceOnce(t, program, `"127.0.0.1:8080"`, "os.Args[2]")
	program = replaceOnce(t, program, `"127.0.0.1:7379"`, "os.Args[3]")
	return replaceOnce(t, program, `"payments-api")`, `"payments-api", lock.WithOpTimeout(30e9))`)
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
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const self = "github.com/onceguard/onceguard"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": program,
		"go.sum":  readPage(t, "go.sum"),
		"go.mod": replaceOnce(t, readPage(t, "go.mod"), "module "+self+"\n", "module shop\n") +
			fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", self, self, here),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "shop", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return filepath.Join(dir, "shop")
}

// Every line of the pages' Go is a line of the Examples. (The pages of other modules have tests there.)
func TestPagesAreCompiled(t *testing.T) {
	t.Parallel()
	compiled := map[string]bool{}
	for _, file := range []string{
		"example_test.go", "middleware/example_test.go", "once/example_test.go", "profile/example_test.go", "sqljournal/example_test.go",
		"sqljournal/example_provider_test.go", "sqljournal/example_mysql_test.go", "sqljournal/example_oncetest_test.go",
	} {
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
	if blocks < 5 {
		t.Errorf("%d blocks of Go, want more", blocks)
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
	for _, page := range pages(t) {
		if page == "CONTRIBUTING.md" { // it has patterns for -run
			continue
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(readPage(t, page), -1) {
			if !tests[name] {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
}
