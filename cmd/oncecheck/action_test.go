package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
)

// actionShell returns the shell of action.yml.
func actionShell(t *testing.T) string {
	t.Helper()
	_, indented, ok := strings.Cut(read(t, "action.yml"), "      run: |\n")
	if !ok {
		t.Fatal("action.yml has no shell")
	}
	return strings.ReplaceAll(indented, "\n        ", "\n")
}

// pageArgs returns the flags of the job in docs/check.md, for another API.
func pageArgs(t *testing.T) string {
	t.Helper()
	_, args, ok := strings.Cut(read(t, page), "          args: >-\n")
	if !ok {
		t.Fatal("the page has no job")
	}
	args, _, _ = strings.Cut(args, "          known:")
	args = replaceOnce(t, args, `"psql -tAc 'select count(*) from payments' shop_test"`,
		`"curl -fsS -u ann: $ONCECHECK_URL"`)
	return strings.Join(strings.Fields(replaceOnce(t, args, "'Authorization: Bearer ann'",
		`"Authorization: $AUTH"`)), " ")
}

// The action downloads a binary of the release, verifies its checksum, starts the server, and asks it.
func TestAction(t *testing.T) {
	checktest.MustHave(t, "bash", "curl", "sha256sum")
	t.Parallel()
	release, server := t.TempDir(), build(t, "../../examples/chi-server")
	if out, err := exec.CommandContext(t.Context(), "../../.ci/release-oncecheck", release, runtime.GOOS+"/"+runtime.GOARCH).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := httptest.NewServer(http.FileServer(http.Dir(release)))
	t.Cleanup(files.Close)
	start := func(t *testing.T) (url, command string) {
		addr := freeAddr(t)
		return "http://" + addr + "/payments", server + " -addr " + addr
	}
	run := func(t *testing.T, release, url, start string, env ...string) (output, summary string, err error) {
		dir := t.TempDir()
		job := exec.CommandContext(t.Context(), "bash", "-c", actionShell(t))
		// A server that lives on would keep the output open.
		job.Dir, job.WaitDelay = dir, time.Minute
		job.Env = append(append(os.Environ(), "REDIS_URL=", "GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary.md"),
			"ONCECHECK_RELEASE="+release,
			"ONCECHECK_URL="+url, "ONCECHECK_START="+start, "ONCECHECK_KNOWN=", "AUTH=Basic YW5uOg==",
			"ONCECHECK_ARGS="+pageArgs(t)+" -only once/repeat,key/quoted"), env...)
		out, err := job.CombinedOutput()
		text, _ := os.ReadFile(filepath.Join(dir, "summary.md"))
		return string(out), string(text), err
	}
	t.Run("holds", func(t *testing.T) {
		t.Parallel()
		url, command := start(t)
		if out, summary, err := run(t, files.URL, url, command); err != nil || !strings.Contains(summary, "all that was asked holds") {
			t.Errorf("%v\n%s\n%s", err, out, summary)
		}
	})
	t.Run("a known failure holds", func(t *testing.T) {
		t.Parallel()
		known := filepath.Join(t.TempDir(), "known")
		if err := os.WriteFile(known, []byte("once/repeat\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		url, command := start(t)
		if out, _, err := run(t, files.URL, url, command, "ONCECHECK_KNOWN="+known); err == nil || !strings.Contains(out, "holds now: remove it") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	// fault: "exec: PORT=8080: not found", and the server is not stopped.
	t.Run("a line of the shell", func(t *testing.T) {
		t.Parallel()
		url, command := start(t)
		if out, summary, err := run(t, files.URL, url, "cd / && PORT=1 "+command); err != nil || !strings.Contains(summary, "all that was asked holds") {
			t.Errorf("%v\n%s\n%s", err, out, summary)
		}
	})
	// fault: two minutes are waited for it.
	t.Run("a server that does not start", func(t *testing.T) {
		t.Parallel()
		url, _ := start(t)
		if out, _, err := run(t, files.URL, url, "exit 3"); err == nil || !strings.Contains(out, "the server has ended") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	// fault: curl refuses its braces, and two minutes are waited.
	t.Run("a URL with a placeholder", func(t *testing.T) {
		t.Parallel()
		bin, there := t.TempDir(), httptest.NewServer(new(unprotected))
		defer there.Close()
		if err := os.WriteFile(filepath.Join(bin, "sleep"), []byte("#!/bin/sh\necho SLEPT\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		out, _, err := run(t, files.URL, there.URL+"/{{uuid}}", "", "PATH="+bin+":"+os.Getenv("PATH"),
			"ONCECHECK_ARGS=-only once/keys-differ")
		if err != nil || strings.Contains(out, "SLEPT") || !strings.Contains(out, "1 held") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	// Another binary than the one whose checksum is there does not run.
	t.Run("another binary", func(t *testing.T) {
		t.Parallel()
		forged := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "SHA256SUMS") {
				http.ServeFile(w, r, filepath.Join(release, "SHA256SUMS"))
				return
			}
			_, _ = w.Write([]byte("#!/bin/sh\necho FORGED\n"))
		}))
		defer forged.Close()
		url, command := start(t)
		if out, _, err := run(t, forged.URL, url, command); err == nil || strings.Contains(out, "FORGED\n") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
