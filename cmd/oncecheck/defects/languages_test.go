package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
)

// TestLanguages asks servers that are not written in Go: in each language a layer as one writes it first, and one that
// keeps the promise.
func TestLanguages(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		folder  string
		command []string
	}{
		{"node", []string{"node", "main.mjs"}},
		{"python", []string{"python3", "-B", "main.py"}},
	} {
		const naive = `key/spelling key/missing-runs once/concurrent once/client-leaves replay/status replay/location replay/headers
			replay/marked replay/error mismatch/body mismatch/query mismatch/in-flight scope/user scope/user-runs
			inflight/answer inflight/once inflight/then-replay load/shuffled`
		for layer, fails := range map[string]string{"naive": naive, "correct": ""} {
			t.Run(test.folder+"/"+layer, func(t *testing.T) {
				t.Parallel()
				url := startProgram(t, test.folder, append(slices.Clone(test.command), layer)...)
				verdicts := ask(t, "-H", "Authorization: Bearer ann", "-H2", "Authorization: Bearer bob",
					"-d", `{"amount":{{n}}}`, "-effects", url, "-slow", "slow", "-patience", "5s", url)
				if got := ids(verdicts, "failed"); !slices.Equal(got, strings.Fields(fails)) {
					t.Errorf("failed: got %s\nwant %s", strings.Join(got, " "), strings.Join(strings.Fields(fails), " "))
				}
			})
		}
	}
}

// startProgram starts a program of testdata and returns the URL that it prints.
func startProgram(t *testing.T, folder string, command ...string) (url string) {
	t.Helper()
	checktest.MustHave(t, command[0])
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = filepath.Join("testdata", folder)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("it printed %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}
