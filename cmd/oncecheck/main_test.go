package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/plan"
)

// unprotected runs every request, and counts.
type unprotected struct{ n atomic.Int64 }

func (u *unprotected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		fmt.Fprint(w, u.n.Load())
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%d}`, u.n.Add(1))
}

// command runs the command line against an unprotected server, whose URL it appends.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	server := httptest.NewServer(new(unprotected))
	t.Cleanup(server.Close)
	return runWith(t, false, append(args, "-d", `{"n":{{n}}}`, server.URL)...)
}

func runWith(t *testing.T, terminal bool, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, environment{stdout: &out, stderr: &errs, terminal: terminal})
	return code, out.String(), errs.String()
}

func TestList(t *testing.T) {
	t.Parallel()
	code, out, _ := runWith(t, false, "-list")
	if lines := strings.Count(out, "\n"); code != exitHeld || lines != len(plan.All()) {
		t.Errorf("%d, %d lines", code, lines)
	}
	for _, c := range plan.All() {
		if !strings.Contains(out, c.ID) {
			t.Errorf("%s is not listed", c.ID)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want int
		says string // on standard output or error
	}{
		{"-only once/keys-differ", exitHeld, "1 held, 0 failed"},
		{"-only once/repeat", exitFailed, "FAILED  MUST"},
		{"-only once/repe*,once/keys-differ -skip once/repeat-later", exitFailed, "1 held, 1 failed"},
		{"-only replay/answered,replay/marked,key/empty", exitHeld, "noted"},
		{"-strict -only key/empty", exitFailed, "FAILED  SHOULD"},
		{"-strict -only key/empty-field", exitFailed, "201 Created, want 400\n"},
		{"-verbose -only key/empty", exitHeld, "noted SHOULD key/empty: "},
		{"-only crash/*", exitNotAsked, "none of the checks could be asked"},
		{"-only once/never", exitNotAsked, `no check "once/never"`},
		{"-skip once/never", exitNotAsked, `no check "once/never"`},
		{"-status never=400", exitNotAsked, "in-flight"},
		{"-status reused=200", exitNotAsked, "no status of a refusal"},
		{"-status in-flight=409,425 -only once/keys-differ", exitHeld, "1 held"},
		{"-effects true -only once/repeat", exitNotAsked, "cannot be counted"},
		{"-parallel 0", exitNotAsked, "-parallel"},
		{"-timeout 0s", exitNotAsked, "-timeout"},
		{"-store-down true", exitNotAsked, "belong together"},
		{"-H nonsense", exitNotAsked, "Name: value"},
		{"-d {{never}}", exitNotAsked, "no placeholder"},
		{"-d @/nowhere/to/be/found", exitNotAsked, "no such file"},
		{"-help", exitHeld, "usage"},
		{"-X GET -d x -only once/repeat extra", exitNotAsked, "want one URL"},
		{"-parallel 5 -only once/concurrent-10,once/keys-differ", exitHeld, "need -parallel 10"},
	} {
		code, out, errs := command(t, strings.Fields(c.args)...)
		if strings.Contains(c.args, "{{never}}") || strings.Contains(c.args, "@/nowhere") {
			code, out, errs = runWith(t, false, append(strings.Fields(c.args), "http://127.0.0.1:1")...)
		}
		if code != c.want || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: %d, %q, %q; want %d and %q", c.args, code, out, errs, c.want, c.says)
		}
	}
}

// A server that ignores the key has one finding, and no more text than that beside the table.
func TestIgnoresTheKey(t *testing.T) {
	t.Parallel()
	code, out, _ := command(t, "-strict", "-skip", "once/repeat-later")
	for _, want := range []string{" ignores Idempotency-Key: one request, sent twice with one key, took effect twice; sent 50 times at one instant, 50 times.\n", "This explains ", "\nNext: "} {
		if code != exitFailed || !strings.Contains(out, want) {
			t.Errorf("%d, no %q in\n%s", code, want, out)
		}
	}
	if strings.Contains(out, "  asked: ") || strings.Count(out, "\n") > len(plan.All())+30 {
		t.Errorf("more than the finding:\n%s", out)
	}
}

// What a new user sees who forgets something, or gets it wrong, says what to do.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/silent", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/moved", http.RedirectHandler("/payments/", http.StatusPermanentRedirect))
	for path, status := range map[string]int{"/private": 401, "/forbidden": 403, "/read-only": 405, "/bodiless": 400, "/busy": 500} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	gone := httptest.NewServer(mux)
	gone.Close()
	body := []string{"-d", "{{n}}"}
	for _, c := range []struct {
		url  string
		args []string
		want int
		says string
	}{
		{gone.URL, body, exitNotAsked, "Is the server running"},
		{gone.URL, []string{"-effects", gone.URL}, exitNotAsked, "Is the server running"},
		{server.URL + "/payment", body, exitNotAsked, "Is the path right?"},
		{server.URL + "/private", body, exitNotAsked, "-H 'Authorization: Bearer ...'"},
		{server.URL + "/private", []string{"-effects", server.URL + "/private"}, exitNotAsked, "-H 'Authorization: Bearer ...'"},
		{server.URL + "/forbidden", body, exitNotAsked, "-H 'Authorization: Bearer ...'"},
		{server.URL + "/read-only", body, exitNotAsked, "-X PUT"},
		{server.URL + "/bodiless", nil, exitNotAsked, "Does the request need a body?"},
		{server.URL + "/bodiless", body, exitNotAsked, "Is the request valid"},
		{server.URL + "/busy", body, exitNotAsked, "log"},
		{server.URL + "/moved", body, exitNotAsked, `Give that URL: "/payments/"`},
		{server.URL + "/silent", []string{"-effects", server.URL + "/none"}, exitNotAsked, "Check -effects"},
		{server.URL + "/silent", []string{"-only", "key/quoted,once/repeat"}, exitHeld, "could not see whether a repeated request runs again.\nNext: For that, give -effects"},
		{server.URL + "/silent", []string{"-zz"}, exitNotAsked, "oncecheck -h explains the flags"},
	} {
		code, out, errs := runWith(t, false, append(slices.Clone(c.args), c.url)...)
		if code != c.want || !strings.Contains(out+errs, c.says) || strings.Count(errs, "\n") > 2 {
			t.Errorf("%s %q: %d, %q; want %d and %q", c.url, c.args, code, out+errs, c.want, c.says)
		}
	}
}

// Known failures let a team start today, and must be taken off the list when they hold.
func TestExpect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		known string
		want  int
		says  string
	}{
		{"once/repeat # ticket 7\n\n# all\nonce/chunked", exitHeld, "2 known"},
		{"once/repeat", exitFailed, "FAILED     MUST  once/chunked"},
		{"once/repeat\nonce/chunked\nonce/keys-differ", exitFailed, "holds now"},
		{"once/repeat\nonce/chunked\nscope/user", exitFailed, "was not asked: give -H2"},
		{"once/repeat\nonce/chunked\nload/shuffled", exitHeld, "2 known"}, // which is not among those to ask
		{"once/repeat\nonce/never", exitNotAsked, "line 2"},
	} {
		file := filepath.Join(t.TempDir(), "known")
		if err := os.WriteFile(file, []byte(c.known), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := command(t, "-expect", file, "-only", "once/repeat,once/chunked,once/keys-differ,scope/user")
		if code != c.want || !strings.Contains(out+errs, c.says) {
			t.Errorf("%q: %d, %q, %q; want %d and %q", c.known, code, out, errs, c.want, c.says)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	junit, markdown := filepath.Join(dir, "junit.xml"), filepath.Join(dir, "summary.md")
	for range 2 {
		code, out, errs := command(t, "-json", "-junit", junit, "-markdown", markdown, "-seed", "5", "-only", "once/repeat")
		var report struct {
			Seed   uint64
			Checks []struct{ ID, Verdict, Customer string }
		}
		if err := json.Unmarshal([]byte(out), &report); code != exitFailed || err != nil || report.Seed != 5 || len(report.Checks) != 1 || report.Checks[0].Customer == "" {
			t.Errorf("%d, %v, %s%s", code, err, out, errs)
		}
	}
	for file, want := range map[string]int{junit: 1, markdown: 2} { // a summary is appended to
		if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "oncecheck: ")+strings.Count(string(text), "<testsuite ") != want {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}
	if code, _, errs := command(t, "-junit", filepath.Join(dir, "none", "x"), "-only", "once/repeat"); code != exitNotAsked || errs == "" {
		t.Errorf("a report that cannot be written: %d %q", code, errs)
	}
}

// Progress is for terminals alone.
func TestProgress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(new(unprotected))
	defer server.Close()
	for _, terminal := range []bool{false, true} {
		_, out, errs := runWith(t, terminal, "-only", "once/keys-differ", server.URL)
		if strings.Contains(errs, "1 of 1: once/keys-differ") != terminal || strings.Contains(out, "\x1b") {
			t.Errorf("terminal %v: %q, %q", terminal, out, errs)
		}
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(new(unprotected))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{server.URL}, environment{stdout: &out, stderr: &errs}); code != exitNotAsked || errs.Len() == 0 {
		t.Errorf("%d, %q, %q", code, out.String(), errs.String())
	}
}
