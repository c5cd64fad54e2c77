package clienttest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/onceclient"
)

// recipe returns the first block of docs/clients.md in a language.
func recipe(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/clients.md")
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

// goProgram posts a file with the recipe.
const goProgram = `package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/onceguard/onceguard/onceclient"
)

func main() {
	url, key, ctx := os.Args[1], os.Args[3], context.Background()
	order, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(order))
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
%s
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
}
`

func TestGoRecipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "pay")
	program := fmt.Sprintf(goProgram, recipe(t, "go"))
	build := exec.Command("go", "build", "-o", binary, write(t, dir, "main.go", program))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	checkRecipe(t, binary)
}

// fetchProgram posts a file with the recipe, which is in pay.mjs.
const fetchProgram = `#!/usr/bin/env node
import { readFileSync } from 'node:fs'
import { keyedFetch } from './pay.mjs'

const [url, file, key] = process.argv.slice(2)
const response = await keyedFetch(url, readFileSync(file, 'utf8'), key)
console.log(response.status, await response.text())
`

func TestFetchRecipe(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("needs node")
	}
	dir := t.TempDir()
	write(t, dir, "pay.mjs", recipe(t, "js"))
	checkRecipe(t, write(t, dir, "main.mjs", fetchProgram))
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

// checkRecipe runs program, which posts a file under a key, against a server whose responses are lost: whole, in the header
// and in the body. Run again, it gets the same response. It repeats what X-Should-Retry calls for, and nothing that is final.
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
		file, key := write(t, t.TempDir(), "order", "book"), onceclient.NewKey()
		for range 2 {
			var out, complaints bytes.Buffer
			cmd := exec.Command(program, url+"/orders", file, key)
			cmd.Stdout, cmd.Stderr = &out, &complaints
			err := cmd.Run()
			if text := out.String(); err != nil || !strings.HasPrefix(text, "201 ") || !strings.Contains(text, "book is number 1") {
				t.Errorf("got %q, %v, %s", text, err, complaints.String())
			}
		}
		checkLedger(t, &l, 1)

		// The key stands for one intent: another body is refused, and not repeated.
		write(t, filepath.Dir(file), "order", "two books")
		if out, _ := exec.Command(program, url+"/orders", file, key).Output(); !strings.HasPrefix(string(out), "422 ") || !strings.Contains(string(out), onceclient.KeyReused) {
			t.Errorf("another body under the key: got %q", out)
		}
		checkLedger(t, &l, 1)
	})

	t.Run("answers", func(t *testing.T) {
		t.Parallel()
		file := write(t, t.TempDir(), "order", "book")
		for _, answers := range [][]string{
			{"503", "201"},
			{"409 X-Should-Retry:true", "201"},
			{"503 X-Should-Retry:false"},
			{"409 X-Should-Retry:false"},
			{"500 Idempotent-Replayed:true"},
			{"201 X-Should-Retry:true"},
			{"404"},
			{"501"},
		} {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fields := strings.Fields(answers[min(int(asked.Add(1)), len(answers))-1])
				for _, field := range fields[1:] {
					name, value, _ := strings.Cut(field, ":")
					w.Header().Set(name, value)
				}
				status, _ := strconv.Atoi(fields[0])
				w.WriteHeader(status)
			}))
			out, _ := exec.Command(program, server.URL, file, "k").Output()
			server.Close()
			last, _, _ := strings.Cut(answers[len(answers)-1], " ")
			if got := string(out); int(asked.Load()) != len(answers) || !strings.HasPrefix(got, last+" ") {
				t.Errorf("%q: got %q after %d tries", answers, got, asked.Load())
			}
		}
	})
}

// The table of docs/clients.md names the problem types that the package exports.
func TestTableNamesTheProblems(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/clients.md")
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
