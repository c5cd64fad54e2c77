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
	run := func(t *testing.T, release, start string, env ...string) (output string, err error) {
		dir, addr := t.TempDir(), freeAddr(t)
		job := exec.CommandContext(t.Context(), "bash", "-c", actionShell(t))
		// A server that lives on would keep the output open.
		job.Dir, job.WaitDelay = dir, time.Minute
		job.Env = append(append(os.Environ(), "REDIS_URL=", "GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary.md"),
			"ONCECHECK_RELEASE="+release, "ONCECHECK_URL=http://"+addr+"/payments", "ONCECHECK_KNOWN=", "AUTH=Basic YW5uOg==",
			"ONCECHECK_START="+strings.ReplaceAll(start, "SERVER", server+" -addr "+addr),
			"ONCECHECK_ARGS="+pageArgs(t)+" -only once/repeat,key/quoted"), env...)
		out, err := job.CombinedOutput()
		text, _ := os.ReadFile(filepath.Join(dir, "summary.md"))
		return string(out) + string(text), err
	}
	known := filepath.Join(t.TempDir(), "known")
	if err := os.WriteFile(known, []byte("once/repeat\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Another binary than the one whose checksum is there does not run.
	forged := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "SHA256SUMS") {
			http.ServeFile(w, r, filepath.Join(release, "SHA256SUMS"))
			return
		}
		_, _ = w.Write([]byte("#!/bin/sh\necho all that was asked holds\n"))
	}))
	t.Cleanup(forged.Close)
	there := httptest.NewServer(new(unprotected))
	t.Cleanup(there.Close)
	for _, c := range []struct {
		name, release, start, env string
		holds                     bool
		says                      string
	}{
		{"holds", files.URL, "SERVER", "A=B", true, "all that was asked holds"},
		{"a known failure holds", files.URL, "SERVER", "ONCECHECK_KNOWN=" + known, false, "holds now: remove it"},
		// fault: "exec: PORT=8080: not found", and the server is not stopped.
		{"a line of the shell", files.URL, "cd / && PORT=1 SERVER", "A=B", true, "all that was asked holds"},
		// fault: two minutes are waited for it.
		{"a server that does not start", files.URL, "exit 3", "A=B", false, "the server has ended"},
		{"another binary", forged.URL, "SERVER", "A=B", false, "oncecheck-"},
		// fault: curl refuses the braces of a placeholder, and two minutes are waited.
		{"a URL with a placeholder", files.URL, "", "ONCECHECK_URL=" + there.URL + "/{{uuid}}", false, "the effects cannot be counted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, c.release, c.start, c.env)
			if (err == nil) != c.holds || !strings.Contains(out, c.says) || !c.holds && strings.Contains(out, "all that was asked holds\n") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
