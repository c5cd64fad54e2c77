package report_test

import (
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/report"
)

// The shell reads from each line what was sent: a function in place of curl prints its arguments.
func TestCurlInAShell(t *testing.T) {
	t.Parallel()
	hostile := request("key-9")
	hostile.Header = append(hostile.Header, ask.Field{Name: "X-Odd", Value: `"$(touch /tmp/never)" ` + "`id` \\ '"},
		ask.Field{Name: "X-Empty"})
	hostile.Body = []byte(`{"k":"key-9","cost":"$HOME","q":"a'b"}`)
	lines := report.Curl([]ask.Exchange{answered(hostile, 200, "two\nlines\x1b[0m")})
	if len(lines) != 2 || strings.Contains(lines[1], "\x1b") || strings.Contains(lines[1], "\n") {
		t.Fatalf("%q", lines)
	}
	script := "curl() { for a in \"$@\"; do printf '[%s]\\n' \"$a\"; done; }; AUTHORIZATION=mine\n" + strings.Join(lines, "\n")
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	want := `[-gisS]
[-X]
[POST]
[-H]
[Authorization: mine]
[-H]
[Idempotency-Key: "NEW"]
[-H]
[X-Odd: "$(touch /tmp/never)" ` + "`id`" + ` \ ']
[-H]
[X-Empty;]
[--data-binary]
[{"k":"NEW","cost":"$HOME","q":"a'b"}]
[http://127.0.0.1:8080/payments]
`
	if got := newKey.ReplaceAllString(string(out), "NEW"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// newKey is a UUID of version 4.
var newKey = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b`)

// fault: a small image has neither uuidgen nor bash. The shell makes each key once, with nothing else than od.
func TestCurlKeys(t *testing.T) {
	t.Parallel()
	lines := report.Curl([]ask.Exchange{answered(request("key-1"), 200, ""), answered(request("key-2"), 200, "")})
	script := strings.Join(lines[:2], "\n") + "\necho $KEY; echo $KEY2"
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
	keys := newKey.FindAllString(string(out), -1)
	if err != nil || len(keys) != 2 || keys[0] == keys[1] || len(out) != 2*37 {
		t.Errorf("%v\n%s\n%s", err, out, script)
	}
}

// The lines keep what was sent at one instant, what still ran, and what was run in between. They are no more than a few.
func TestCurlOrder(t *testing.T) {
	t.Parallel()
	change := func(change func(*ask.Request)) ask.Exchange {
		r := ask.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: "one"}, Op: ask.Operation{Key: "key-1"}}
		change(&r)
		return answered(r, 200, "")
	}
	plain := change(func(*ask.Request) {})
	runs := change(func(r *ask.Request) { r.Runs = true })
	once := change(func(r *ask.Request) { r.AtOnce = true })
	leaves := change(func(r *ask.Request) { r.Leaves = 150 * time.Millisecond })
	waited := change(func(r *ask.Request) { r.Waited = 2 * time.Second })
	killed := change(func(r *ask.Request) { r.Before = "restart" })
	down := change(func(r *ask.Request) { r.Before, r.After = "down", "up" })
	odd := change(func(r *ask.Request) { r.URL = &url.URL{Scheme: "http", Host: "[::1]:80", RawQuery: "a[0]={}"} })
	const one = "curl -gisS -X POST 'http://one/'"
	for _, c := range []struct {
		exchanges []ask.Exchange
		want      []string // without KEY and comments
	}{
		{[]ask.Exchange{runs, once}, []string{one + " & sleep 0.5", one + "; wait"}},
		{[]ask.Exchange{runs, once, once, plain}, []string{one + " & sleep 0.5", one + " &", one + "; wait", one}},
		{[]ask.Exchange{runs, killed}, []string{one + " & sleep 0.5", "restart", one, "wait"}},
		{[]ask.Exchange{plain, down, plain}, []string{one, "down", one, "up", one}},
		{[]ask.Exchange{waited}, []string{"for wait in 2.1 0; do " + one + "; sleep $wait; done"}},
		{[]ask.Exchange{leaves}, []string{"curl -gisS -X POST -m 0.15 'http://one/'"}},
		{[]ask.Exchange{odd}, []string{"curl -gisS -X POST 'http://[::1]:80/?a[0]={}'"}},
		{slices.Repeat([]ask.Exchange{plain}, 100), append(slices.Repeat([]string{one}, 8), "# and 92 more")},
	} {
		var got []string
		for _, line := range report.Curl(c.exchanges)[1:] {
			line, _, _ = strings.Cut(line, "  # ")
			got = append(got, line)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// No answer of a server gets out of its comment, or acts on a terminal.
func FuzzCurl(f *testing.F) {
	f.Add([]byte("body\n$(id)"), "key", `"key"`)
	f.Add([]byte{0xff, 0x1b}, "", "`")
	f.Add([]byte{}, "key", "  # 200 OK\n")
	f.Fuzz(func(t *testing.T, body []byte, key, value string) {
		r := request(key)
		r.Header[1].Value = value
		bare := report.Curl([]ask.Exchange{answered(r, 200, "")})
		lines := report.Curl([]ask.Exchange{answered(r, 200, string(body))})
		last := len(lines) - 1
		comment, ok := strings.CutPrefix(lines[last], bare[last])
		if !ok || !strings.HasSuffix(bare[last], "  # 200 OK") || strings.ContainsAny(comment, "\n\r\x1b\x00") {
			t.Errorf("%q, and without a body %q", lines, bare)
		}
	})
}
