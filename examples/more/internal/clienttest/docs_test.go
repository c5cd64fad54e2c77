package clienttest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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
	program := write(t, dir, "main.go", fmt.Sprintf(goProgram, recipe(t, "go")))
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "pay"), program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	checkRecipe(t, filepath.Join(dir, "pay"))
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
	mustHave(t, "node --version", "v")
	dir := t.TempDir()
	write(t, dir, "pay.mjs", recipe(t, "js"))
	checkRecipe(t, write(t, dir, "main.mjs", fetchProgram))
}

// mustHave skips the test if the output of a command lacks a text, and fails it in CI.
func mustHave(t *testing.T, command, text string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).Output()
	switch {
	case strings.Contains(string(out), text):
	case os.Getenv("CI") == "true":
		t.Fatalf("%s: %v", command, err)
	default:
		t.Skip("left out: needs " + command)
	}
}

// checkRecipe runs program, which posts a file under a key, against a server whose responses are lost: whole, in the header
// and in the body. Run again, it gets the same response. It repeats what X-Should-Retry calls for, and nothing that is final.
func checkRecipe(t *testing.T, program string) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		s := newSite(t, b)
		s.lose = func(n int) loss { return append([]loss{whole, inTheBody, inTheHead}, make([]loss, n)...)[n-1] }
		dir, key := t.TempDir(), onceclient.NewKey()
		for _, c := range []struct{ order, status, text string }{
			{"book", "201 ", "book is number 1"},
			{"book", "201 ", "book is number 1"},
			{"two books", "422 ", "urn:onceguard:problem:key-reused"}, // the key stands for one intent
		} {
			out, err := exec.Command(program, s.URL, write(t, dir, "order", c.order), key).Output()
			if got := string(out); !strings.HasPrefix(got, c.status) || !strings.Contains(got, c.text) {
				t.Errorf("got %q, %v; want %s%s", got, err, c.status, c.text)
			}
		}
		s.wantOrders(t, 1)
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

// The table of docs/clients.md names the problems that a client meets.
func TestTableNamesTheProblems(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"in-flight", "outcome-unknown", "response-not-stored", "fingerprint-changed", "key-reused", "key-failed", "record-unreadable",
	} {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/clients.md does not name %s", name)
		}
	}
}
