package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
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
	return runWith(t, append(args, "-d", `{"n":{{n}}}`, server.URL)...)
}

func runWith(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, environment{stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want int
		says string // on standard output or error
	}{
		{"-only once/keys-differ", 0, "1 held, 0 failed"},
		{"-only once/repeat", 1, "FAILED  MUST"},
		{"-only once/repe*,once/keys-differ -skip once/repeat-later", 1, "1 held, 1 failed"},
		{"-only replay/answered,replay/marked,key/spelling", 0, "noted"},
		{"-strict -only key/spelling", 1, "no value (runs each time)"},
		{"-verbose -only key/spelling", 0, "noted SHOULD key/spelling: "},
		{"-only crash/*", 2, "none of the checks could be asked"},
		{"-only once/never", 2, `no check "once/never"`},
		{"-status never=400", 2, "in-flight"},
		{"-status reused=200", 2, "no status of a refusal"},
		{"-effects true -only once/repeat", 2, "cannot be counted"},
		{"-parallel 0", 2, "-parallel"},
		{"-store-down true", 2, "belong together"},
		{"-H nonsense", 2, "Name: value"},
		{"-H A:x -H B:y -H2 b:y", 2, "-H2 says what -H says"},
		{"-H A:x -H A:y -H2 A:y -only once/keys-differ", 0, "1 held"},
		{"-help", 0, "usage"},
		{"-parallel 5 -only once/concurrent", 1, "2 effects of 2 requests at one instant"},
		{"-parallel 1 -only once/concurrent,once/keys-differ", 0, "1 held, 0 failed, 1 not asked"},
		{"-key {{n}}", 2, "must contain {{key}}"},
	} {
		code, out, errs := command(t, strings.Fields(c.args)...)
		if code != c.want || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: %d, %q, %q; want %d and %q", c.args, code, out, errs, c.want, c.says)
		}
	}
}

// What a new user sees who forgets something, or gets it wrong, says what to do.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/silent", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/guarded", http.RedirectHandler("/users/sign_in?next=/guarded", http.StatusFound))
	mux.Handle("/moved", http.RedirectHandler("/payments/", http.StatusPermanentRedirect))
	for path, status := range map[string]int{"/private": 401, "/read-only": 405, "/bodiless": 400, "/busy": 500} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	server, secure := httptest.NewServer(mux), httptest.NewUnstartedServer(mux)
	defer server.Close()
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for _, c := range []struct {
		url, args, says string
	}{
		{"http://127.0.0.1:1", "-d {{n}}", "Is the server running"},
		{"http://127.0.0.1:1", "-d {{never}}", "no placeholder"},
		{"http://127.0.0.1:1", "-d @/nowhere/to/be/found", "no such file"},
		{server.URL + "/silent", "-effects http://127.0.0.1:1", "Is the server running"},
		{server.URL + "/payment", "-d {{n}}", "Give the URL of a request"},
		{strings.TrimPrefix(server.URL, "http://") + "/payment", "", "Give the URL of a request"},
		{server.URL + "/private", "", "-H 'Authorization: Bearer ...'"},
		{server.URL + "/silent", "-effects " + server.URL + "/private", "-H 'Authorization: Bearer ...'"},
		{server.URL + "/guarded", "", `is sent to a login: "/users/sign_in?next=/guarded"`},
		{secure.URL + "/silent", "", "add -insecure"},
		{":8080/x", "", "no host"},
		{strings.Replace(server.URL, "http:", "https:", 1) + "/silent", "", "does it speak TLS"},
		{server.URL + "/read-only", "", "-X PUT"},
		{server.URL + "/bodiless", "", "Is the request valid"},
		{server.URL + "/busy", "", "log"},
		{server.URL + "/moved", "", `Give that URL: "/payments/"`},
		{server.URL + "/silent", "-effects " + server.URL + "/none", "Check -effects"},
		{server.URL + "/silent", "-only key/quoted,once/repeat",
			"could not see whether a repeated request runs again.\nNext: For that, give -effects"},
		{server.URL + "/silent", "-zz", "oncecheck -h explains the flags"},
	} {
		code, out, errs := runWith(t, append(strings.Fields(c.args), c.url)...)
		if wantNone := strings.HasPrefix(c.args, "-only"); (code == 0) != wantNone || !strings.Contains(out+errs, c.says) || strings.Count(errs, "\n") > 2 {
			t.Errorf("%s %q: %d, %q; want %q", c.url, c.args, code, out+errs, c.says)
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
		{"once/repeat # ticket 7\n\n# all\nonce/concurrent", 0, "2 known"},
		{"once/repeat", 1, "FAILED  MUST    once/concurrent"},
		{"once/repeat\nonce/concurrent\nonce/keys-differ", 1, "holds now"},
		{"once/repeat\nonce/concurrent\nscope/user", 1, "was not asked: give -H2"},
		// This one is not among those to ask.
		{"once/repeat\nonce/concurrent\nload/shuffled", 0, "2 known"},
		{"once/repeat\nonce/never", 2, "line 2"},
	} {
		file := filepath.Join(t.TempDir(), "known")
		if err := os.WriteFile(file, []byte(c.known), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := command(t, "-expect", file, "-only", "once/repeat,once/concurrent,once/keys-differ,scope/user")
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
		code, out, errs := command(t, "-json", "-junit", junit, "-markdown", markdown, "-only", "once/repeat")
		var report struct {
			Checks []struct{ ID, Verdict, Customer string }
		}
		if err := json.Unmarshal([]byte(out), &report); code != 1 || err != nil || len(report.Checks) != 1 || report.Checks[0].Customer == "" {
			t.Errorf("%d, %v, %s%s", code, err, out, errs)
		}
	}
	// A summary is appended to.
	for file, want := range map[string]int{junit: 1, markdown: 2} {
		if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "oncecheck: ")+strings.Count(string(text), "<testsuite ") != want {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}
	// fault: a run of minutes, and then no report
	for _, flag := range []string{"-junit", "-markdown"} {
		code, out, errs := command(t, flag, filepath.Join(dir, "none", "x"), "-only", "once/repeat")
		if code != 2 || out != "" || !strings.Contains(errs, flag+": ") {
			t.Errorf("a report that cannot be written: %d %q %q", code, out, errs)
		}
	}
}

// An interrupted run prints what is known. fault: its output is empty.
func TestInterruptedLater(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var posts atomic.Int64
	next := new(unprotected)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if posts.Add(1) == 9 { // the second check's second
			cancel()
			<-r.Context().Done()
			return
		}
		next.ServeHTTP(w, r)
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"-only", "once/repeat,once/keys-differ", "-verbose", server.URL},
		environment{stdout: &out, stderr: &errs})
	if code != 2 || !strings.Contains(out.String(), "FAILED  MUST  once/repeat") || strings.Contains(out.String(), "once/keys-differ") ||
		!strings.Contains(errs.String(), "interrupted: 1 of 2 checks were asked") {
		t.Errorf("%d, %q, %q", code, out.String(), errs.String())
	}
}

// A flag that is wrong is not printed. fault: the token stands on the standard error, by the job's log.
func TestWrongHeaderIsNotShown(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-H", "-H2"} {
		for _, value := range []string{"Authorization Bearer s3cr3t", ": s3cr3t", "X: s3cr3t\nY: 1"} {
			code, out, errs := runWith(t, flag, value, "http://127.0.0.1:1")
			if code != 2 || strings.Contains(out+errs, "s3cr3t") || !strings.Contains(errs, flag+": want 'Name: value'") {
				t.Errorf("%s %q: %d, %q", flag, value, code, out+errs)
			}
		}
	}
}

// What the user gave with -H is in no report, although the server repeats it everywhere.
func TestCredentialsAreNotShown(t *testing.T) {
	t.Parallel()
	const secret, pin, cookie = "s3cr3t-t0ken", "998877665544", "c00kie-of-a-session"
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/of/"+r.Header.Get("Authorization"))
		w.Header().Set("Set-Cookie", "sid="+cookie+"; Path=/")
		w.Header().Set("Content-Type", "text/"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if r.Header.Get("Idempotency-Key") == "" {
			w.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprintf(w, "%d of %s, in JSON %q", n.Add(1), r.Header.Get("Authorization"), r.Header.Get("Authorization"))
	}))
	defer server.Close()
	junit, markdown := filepath.Join(t.TempDir(), "x.xml"), filepath.Join(t.TempDir(), "x.md")
	for _, form := range []string{"-verbose", "-json", "-strict"} {
		_, out, errs := runWith(t, form, "-H", "Authorization: Bearer "+secret, "-H", "X-Pin: "+pin, "-d",
			`{"n":{{n}}}`, "-junit", junit, "-markdown", markdown,
			"-only", "key/missing,once/repeat,once/concurrent,replay/*,errors/*", server.URL)
		if all := out + errs + read(t, junit) + read(t, markdown); strings.Contains(all, secret) || strings.Contains(all, pin) || strings.Contains(all, cookie) ||
			!strings.Contains(all, "$AUTHORIZATION") || !strings.Contains(all, "$X_PIN") {
			t.Errorf("%s: %s", form, all)
		}
	}
	// fault: what is cut before it is hidden is the beginning of a secret.
	long := strings.Repeat(secret+"-", 20)
	for _, effects := range []string{"echo " + long, "echo " + secret} {
		_, _, errs := runWith(t, "-H", "X-Long: "+long, "-H", "X-Pin: "+secret, "-effects", effects, server.URL)
		if strings.Contains(errs, secret) || !strings.Contains(errs, "neither a number") {
			t.Errorf("%s: %s", effects, errs)
		}
	}
}
