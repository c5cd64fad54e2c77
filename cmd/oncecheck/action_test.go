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
	args = replaceOnce(t, args, `"psql -tAc 'select count(*) from payments' shop_test"`, `"curl -fsS -u ann: $ONCECHECK_URL"`)
	return strings.Join(strings.Fields(replaceOnce(t, args, "'Authorization: Bearer ann'", `"Authorization: $AUTH"`)), " ")
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
	run := func(t *testing.T, release string, env ...string) (output, summary string, err error) {
		dir, addr := t.TempDir(), freeAddr(t)
		job := exec.CommandContext(t.Context(), "bash", "-c", actionShell(t))
		job.Dir = dir
		job.Env = append(append(os.Environ(), "REDIS_URL=", "GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary.md"), "ONCECHECK_RELEASE="+release,
			"ONCECHECK_URL=http://"+addr+"/payments", "ONCECHECK_START="+server+" -addr "+addr, "ONCECHECK_KNOWN=", "AUTH=Basic YW5uOg==",
			"ONCECHECK_ARGS="+pageArgs(t)+" -only once/repeat,key/quoted"), env...)
		out, err := job.CombinedOutput()
		text, _ := os.ReadFile(filepath.Join(dir, "summary.md"))
		return string(out), string(text), err
	}
	t.Run("holds", func(t *testing.T) {
		t.Parallel()
		if out, summary, err := run(t, files.URL); err != nil || !strings.Contains(summary, "all that was asked holds") {
			t.Errorf("%v\n%s\n%s", err, out, summary)
		}
	})
	t.Run("a known failure holds", func(t *testing.T) {
		t.Parallel()
		known := filepath.Join(t.TempDir(), "known")
		if err := os.WriteFile(known, []byte("once/repeat\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, _, err := run(t, files.URL, "ONCECHECK_KNOWN="+known); err == nil || !strings.Contains(out, "holds now: remove it") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("another binary", func(t *testing.T) { // than the one whose checksum is there does not run
		t.Parallel()
		forged := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "SHA256SUMS") {
				http.ServeFile(w, r, filepath.Join(release, "SHA256SUMS"))
				return
			}
			_, _ = w.Write([]byte("#!/bin/sh\necho FORGED\n"))
		}))
		defer forged.Close()
		if out, _, err := run(t, forged.URL); err == nil || strings.Contains(out, "FORGED\n") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
