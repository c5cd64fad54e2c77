package onceclient_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/onceclient"
)

// recipe returns the first block of docs/clients.md in a language.
func recipe(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```"+language+"\n")
	block, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatalf("docs/clients.md has no block in %s", language)
	}
	return block
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGoRecipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "pay")
	build := exec.Command("go", "build", "-o", binary, write(t, dir, "main.go", recipe(t, "go")))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	checkRecipe(t, binary)
}

var curlVersion = regexp.MustCompile(`^curl (\d+)\.(\d+)`)

func TestCurlRecipe(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("curl", "--version").Output()
	var major, minor int
	if m := curlVersion.FindSubmatch(out); m != nil {
		_, _ = fmt.Sscan(string(m[1])+" "+string(m[2]), &major, &minor)
	}
	if err != nil || major < 7 || major == 7 && minor < 84 {
		if os.Getenv("CI") == "true" {
			t.Fatalf("curl 7.84 or newer is missing: %v, %q", err, out)
		}
		t.Skip("needs curl 7.84 or newer")
	}
	checkRecipe(t, write(t, t.TempDir(), "pay", recipe(t, "bash")))
}

// checkRecipe runs program, which posts a file, against a server whose responses are lost: whole, in the header, in the
// body, and while the request runs. Run again, it gets the same response. What cannot succeed is reported.
func checkRecipe(t *testing.T, program string) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		var l ledger
		server := guarded(t, newLocker(t, b), l.handle)
		losses := []loss{whole, inTheBody, inTheHead}
		_, url := newLossyProxy(t, server.Listener.Addr().String(), func(n int) loss {
			if n <= len(losses) {
				return losses[n-1]
			}
			return none
		})
		file := write(t, t.TempDir(), "order", "book")
		for range 2 {
			var out, complaints bytes.Buffer
			cmd := exec.Command(program, url+"/orders", file)
			cmd.Stdout, cmd.Stderr = &out, &complaints
			err := cmd.Run()
			if text := out.String(); err != nil || !strings.HasPrefix(text, "201 ") || !strings.Contains(text, "book is number 1") {
				t.Errorf("got %q, %v, %s", text, err, complaints.String())
			}
		}
		checkLedger(t, &l, 1)

		// The key stands for one intent: another body is refused, and not repeated.
		write(t, filepath.Dir(file), "order", "two books")
		if out, _ := exec.Command(program, url+"/orders", file).Output(); !strings.HasPrefix(string(out), "422 ") || !strings.Contains(string(out), onceclient.KeyReused) {
			t.Errorf("another body under the key: got %q", out)
		}
		checkLedger(t, &l, 1)
	})
}

// The table of docs/clients.md names the problem types that the package exports.
func TestTableNamesTheProblems(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range []string{
		onceclient.InFlight, onceclient.OutcomeUnknown, onceclient.ResponseNotStored, onceclient.FingerprintChanged,
		onceclient.KeyReused, onceclient.KeyFailed, onceclient.RecordUnreadable,
	} {
		if name := "`" + strings.TrimPrefix(problem, "urn:onceguard:problem:") + "`"; !strings.Contains(string(text), name) {
			t.Errorf("docs/clients.md does not name %s", name)
		}
	}
}
