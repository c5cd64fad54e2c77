package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// Nothing is sent to a host on the public internet, whichever flag names it.
func TestReach(t *testing.T) {
	t.Parallel()
	lookup := func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if a, err := netip.ParseAddr(host); err == nil {
			return []netip.Addr{a}, nil
		}
		return map[string][]netip.Addr{
			"near.example": {netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::1")},
			"both.example": {netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("203.0.113.9")},
		}[host], nil
	}
	for host, isNear := range map[string]bool{
		"127.0.0.1": true, "[::1]": true, "10.0.0.1": true, "172.16.0.1": true, "169.254.1.1": true, "near.example": true,
		"203.0.113.9": false, "[2001:db8::1]": false, "both.example": false, "172.32.0.1": false, "[::ffff:203.0.113.9]": false,
	} {
		err := checkReach(t.Context(), lookup, nil, &url.URL{Scheme: "http", Host: host})
		if isNear != (err == nil) || !isNear && !strings.Contains(err.Error(), "-i-may-test-this") {
			t.Errorf("%s: %v", host, err)
		}
	}
	const public = "http://203.0.113.9/"
	for _, args := range [][]string{{public}, {"-also", public, "http://127.0.0.1:1/"}, {"-effects", public, "http://127.0.0.1:1/"}} {
		if code, _, errs := runWith(t, args...); code != 2 || !strings.Contains(errs, "public internet") {
			t.Errorf("%q: %d, %q", args, code, errs)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "ftp://127.0.0.1", "http://", "http://ann:secret@127.0.0.1", "http://%zz", ":8080/x", "http://:8080/",
		"http://ann:secret@%zz", "http://ann:secret@[::1", "ftp://ann:secret@127.0.0.1"} {
		if u, err := parseURL(bad); err == nil {
			t.Errorf("%q: %v", bad, u)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows a credential: %v", bad, err)
		}
	}
	if u, err := parseURL("localhost:80/x"); err != nil || u.String() != "http://localhost:80/x" { // as curl has it
		t.Errorf("%v, %v", u, err)
	}
	if u, err := parseURL("http://127.0.0.1:80#x"); err != nil || u.String() != "http://127.0.0.1:80/" {
		t.Errorf("%v, %v", u, err)
	}
}

func isCheck(id string) bool {
	return slices.ContainsFunc(check.All(), func(c check.Check) bool { return c.ID == id })
}

// A profile names checks that there are, and has its statuses.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, p := range profiles {
		for _, id := range slices.Concat(p.skip, p.must) {
			if !isCheck(id) || slices.Contains(p.skip, id) && slices.Contains(p.must, id) {
				t.Errorf("%s: there is no check %s, or it is left out and a MUST", p.name, id)
			}
		}
	}
	for _, c := range []struct {
		args string
		want int
		says string
	}{
		{"-profile acp -only key/missing-runs", 1, "FAILED  MUST    key/missing-runs"},
		{"-profile ucp -only key/*", 0, "0 failed"},
		{"-profile stripe -only replay/marked,key/spelling", 1, "0 held, 1 failed"},
		{"-profile acp -only key/echoed", 1, "FAILED  MUST    key/echoed"},
		{"-profile stripe -strict -only key/echoed", 1, "FAILED  SHOULD  key/echoed"},
		{"-profile ucp -only key/echoed", 2, "leave no check"},
		{"-only key/echoed", 2, "leave no check"},
		// fault: an API whose key is any string, as -key says, is told to read quotes.
		{"-key k-{{key}} -only key/quoted,key/escaped,key/spelling", 2, "leave no check"},
		{"-only key/spelling", 0, "key/spelling"},
		{"-profile paypal", 2, "none of acp, ucp, stripe"},
	} {
		if code, out, errs := runWith(t, append(strings.Fields(c.args), onceServer(t))...); code != c.want || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: %d, %q; want %d and %q", c.args, code, out+errs, c.want, c.says)
		}
	}
}

// A profile yields to -status and -key, wherever they stand. fault: a -profile behind them takes their place.
func TestProfileYields(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                             "[422] [409] ",
		"-status in-flight=425":        "[422] [425] ",
		"-profile ucp":                 "[409] [409] {{key}}",
		"-profile acp -profile stripe": "[400] [409] {{key}}",
		"-status reused=409,422 -profile acp -status in-flight=425": "[409 422] [425] {{key}}",
		"-key k-{{key}} -profile stripe":                            "[400] [409] k-{{key}}",
	} {
		o, err := parse(append(strings.Fields(args), "http://127.0.0.1/"), new(bytes.Buffer))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(o.Statuses.Reused, " ", o.Statuses.InFlight, " ", o.KeyFormat); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

// onceServer returns the URL of a server that runs each key once, takes any string for a key, and has no lock.
func onceServer(t *testing.T) string {
	t.Helper()
	var n atomic.Int64
	var known sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, answer := strings.Join(r.Header["Idempotency-Key"], "|"), fmt.Sprintf(`{"id":%d}`, n.Add(1))
		if stored, ok := known.LoadOrStore(key, answer); ok && key != "" {
			answer = stored.(string)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func FuzzExpect(f *testing.F) {
	f.Add("once/repeat\n# x\n")
	f.Add("once/repeat # y\r\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := parseExpected(text)
		if err != nil {
			return
		}
		for _, id := range ids {
			if !isCheck(id) {
				t.Errorf("%q", id)
			}
		}
	})
}

func FuzzFlags(f *testing.F) {
	f.Add("Name: value", "in-flight=409", "http://127.0.0.1/")
	f.Add(":", "missing=", "http://")
	f.Fuzz(func(t *testing.T, header, status, target string) {
		o, err := parse([]string{"-H", header, "-status", status, "--", target}, new(bytes.Buffer))
		if err != nil {
			return
		}
		if strings.ContainsAny(o.Header[0].Name+o.Header[0].Value, "\r\n") || o.URL.Host == "" {
			t.Errorf("%q, %q", o.Header, o.URL)
		}
	})
}
