package system_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// The shell of the CI job in docs/check.md works: the test gives it another API, and the program of this tree.
func TestCheckPageJob(t *testing.T) {
	mustHave(t, "bash", "curl")
	t.Parallel()
	page := readPage(t, "docs/check.md")
	_, script, ok := strings.Cut(page, "      - run: |\n")
	if !ok {
		t.Fatal("the page has no job")
	}
	script, _, _ = strings.Cut(script, "```")
	script = replaceOnce(t, script, "go run github.com/onceguard/onceguard/cmd/oncecheck@latest", build(t, "../../cmd/oncecheck"))
	if redistest.Rounds(1, 2) == 1 {
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
	line := regexp.MustCompile(`(?m)^oncecheck \.\.\. \| (awk .*) > oncecheck.known$`).FindStringSubmatch(readPage(t, "docs/check.md"))
	if line == nil {
		t.Fatal("the page has no such line")
	}
	filter := exec.CommandContext(t.Context(), "sh", "-c", line[1])
	filter.Stdin = strings.NewReader(readPage(t, "cmd/oncecheck/internal/report/testdata/report.text"))
	if out, err := filter.Output(); err != nil || string(out) != "once/concurrent-2\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// The page is a page, not a book.
func TestCheckPageIsShort(t *testing.T) {
	t.Parallel()
	if words := len(strings.Fields(readPage(t, "docs/check.md"))); words > 690 {
		t.Errorf("%d words, want 690", words)
	}
}
