package shadow_test

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/shadow"
)

// under is an underlying writer. What it wraps has the methods of http.ResponseWriter and Flush alone.
type under struct {
	*httptest.ResponseRecorder
	hijack  error // why Hijack fails
	written bool
	open    error // what LeftOpen returns
	takes   int   // bytes that a Write takes before it fails; 0 for all
}

func (u *under) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, u.hijack }
func (u *under) Written() bool                                { return u.written }
func (u *under) LeftOpen() error                              { return u.open }
func (u *under) Push(string, *http.PushOptions) error         { return nil }
func (u *under) CloseNotify() <-chan bool                     { return make(chan bool) }
func (u *under) SetReadDeadline(time.Time) error              { return nil }
func (u *under) SetWriteDeadline(time.Time) error             { return nil }
func (u *under) EnableFullDuplex() error                      { return nil }

func (u *under) Write(p []byte) (int, error) {
	if u.takes > 0 && len(p) > u.takes {
		n, _ := u.ResponseRecorder.Write(p[:u.takes])
		return n, io.ErrShortWrite
	}
	return u.ResponseRecorder.Write(p)
}

// plain has the methods of http.ResponseWriter alone.
type plain struct{ http.ResponseWriter }

const limit = 10

func says(status int, body string) func(*shadow.Tee, *under) {
	return func(t *shadow.Tee, _ *under) {
		t.WriteHeader(status)
		_, _ = t.WriteString(body)
	}
}

func length(n, body string) func(*shadow.Tee, *under) {
	return func(t *shadow.Tee, _ *under) {
		t.Header().Set("Content-Length", n)
		_, _ = t.Write([]byte(body))
	}
}

// after calls do and writes a 201 then.
func after(do func(t *shadow.Tee, u *under)) func(*shadow.Tee, *under) {
	return func(t *shadow.Tee, u *under) { do(t, u); t.WriteHeader(201) }
}

// What a Tee observes is what a capture.Writer would have decided.
func TestTee(t *testing.T) {
	const whole, partial, broken = capture.Whole, capture.Partial, capture.Broken
	open := errors.New("rendered outside")
	hijacks := func(t *shadow.Tee, _ *under) { _, _, _ = t.Hijack() }
	for name, test := range map[string]struct {
		method  string // POST if empty
		before  under
		do      func(*shadow.Tee, *under)
		verdict capture.Verdict
		status  int
		body    string
		started bool
		cookies bool
	}{
		"nothing":              {do: func(*shadow.Tee, *under) {}, verdict: whole, status: 200},
		"a response":           {do: says(201, "paid"), verdict: whole, status: 201, body: "paid"},
		"two statuses":         {do: after(says(404, "")), verdict: whole, status: 404},
		"a hint":               {do: after(says(103, "")), verdict: whole, status: 200},
		"a hint, and a status": {do: after(func(t *shadow.Tee, _ *under) { t.WriteHeader(103) }), verdict: whole, status: 201},
		"a 101":                {do: says(101, ""), verdict: partial, status: 101, started: true},
		"as long as the limit": {do: says(200, strings.Repeat("x", limit)), verdict: whole, status: 200, body: strings.Repeat("x", limit)},
		"longer":               {do: says(200, strings.Repeat("x", limit+1)), verdict: partial, status: 200, body: strings.Repeat("x", limit+1), started: true},
		"its length":           {do: length("2", "ab"), verdict: whole, status: 200, body: "ab"},
		"too short":            {do: length("3", "ab"), verdict: broken, status: 200, body: "ab"},
		"too long":             {do: length("1", "ab"), verdict: broken, status: 200, body: "ab"},
		"no body at all":       {do: length("1", ""), verdict: broken, status: 200},
		"length 0":             {do: length("0", ""), verdict: whole, status: 200},
		"length 0, and a body": {do: length("0", "ab"), verdict: broken, status: 200, body: "ab"},
		"a negative length":    {do: length("-1", "ab"), verdict: whole, status: 200, body: "ab"},
		"no number":            {do: length("x", "ab"), verdict: whole, status: 200, body: "ab"},
		"HEAD":                 {method: "HEAD", do: length("3", ""), verdict: whole, status: 200},
		"204 with a length": {do: func(t *shadow.Tee, _ *under) {
			t.Header().Set("Content-Length", "3")
			t.WriteHeader(204)
		}, verdict: whole, status: 204},
		"a flush":               {do: func(t *shadow.Tee, _ *under) { t.Flush() }, verdict: whole, status: 200, started: true},
		"a hijack":              {do: hijacks, verdict: partial, started: true},
		"a hijack that fails":   {before: under{hijack: open}, do: hijacks, verdict: whole, status: 200},
		"one that fails later":  {do: func(t *shadow.Tee, u *under) { hijacks(t, u); u.hijack = open; hijacks(t, u) }, verdict: partial, started: true},
		"written around it":     {do: func(_ *shadow.Tee, u *under) { u.written = true }, verdict: capture.Bypassed, started: true},
		"written before":        {before: under{written: true}, do: says(201, ""), verdict: whole, status: 201},
		"nothing, but before":   {before: under{written: true}, do: func(*shadow.Tee, *under) {}, verdict: whole, status: 200},
		"written to both":       {do: func(t *shadow.Tee, u *under) { t.WriteHeader(201); u.written = true }, verdict: whole, status: 201},
		"hijacked, and written": {do: func(t *shadow.Tee, u *under) { hijacks(t, u); u.written = true }, verdict: partial, started: true},
		"left open":             {do: func(_ *shadow.Tee, u *under) { u.open = open }, verdict: capture.LeftOpen},
		"answered, left open":   {do: after(func(_ *shadow.Tee, u *under) { u.open = open }), verdict: whole, status: 201},
		"a write that fails":    {before: under{takes: 2}, do: says(200, "abc"), verdict: whole, status: 200, body: "ab"},
		"a cookie":              {do: after(func(t *shadow.Tee, _ *under) { t.Header().Set("Set-Cookie", "a=b") }), verdict: whole, status: 201, cookies: true},
		"a cookie more":         {do: after(func(t *shadow.Tee, _ *under) { t.Header().Add("Set-Cookie", "outer=2") }), verdict: whole, status: 201, cookies: true},
		"a cookie alone":        {do: func(t *shadow.Tee, _ *under) { t.Header().Set("Set-Cookie", "a=b") }, verdict: whole, status: 200, cookies: true},
		"no cookie any more":    {do: after(func(t *shadow.Tee, _ *under) { t.Header().Del("Set-Cookie") }), verdict: whole, status: 201, cookies: true},
		"a cookie too late": {do: func(t *shadow.Tee, _ *under) {
			t.WriteHeader(201)
			t.Header().Set("Set-Cookie", "a=b")
		}, verdict: whole, status: 201},
		"a cookie after a flush": {do: func(t *shadow.Tee, _ *under) {
			t.Flush()
			t.Header().Set("Set-Cookie", "a=b")
		}, verdict: whole, status: 200, started: true},
		"a cookie as a trailer": {do: func(t *shadow.Tee, _ *under) {
			t.Header().Set("Trailer", "Set-Cookie")
			t.WriteHeader(201)
			t.Header().Set("Set-Cookie", "a=b")
		}, verdict: whole, status: 201, cookies: true},
	} {
		t.Run(name, func(t *testing.T) {
			u := test.before
			u.ResponseRecorder = httptest.NewRecorder()
			u.Header().Set("Set-Cookie", "outer=1")
			method := test.method
			if method == "" {
				method = http.MethodPost
			}
			tee := shadow.NewTee(&u, httptest.NewRequest(method, "/", nil))
			test.do(tee, &u)
			seen := tee.End(limit)
			digest := sha256.Sum256([]byte(test.body))
			if seen.Verdict != test.verdict || seen.Status != test.status || seen.Started != test.started ||
				seen.SetsCookies != test.cookies || string(seen.Digest) != string(digest[:]) {
				t.Errorf("%+v, want verdict %d, status %d, started %t, cookies %t, the digest of %q",
					seen, test.verdict, test.status, test.started, test.cookies, test.body)
			}
			if got := u.Body.String(); got != test.body {
				t.Errorf("the client has %q, want %q", got, test.body)
			}
		})
	}
}

// The header that counts is that at the status. What is written after End is passed on, and not observed.
func TestTeeAfterItsEnd(t *testing.T) {
	u := &under{ResponseRecorder: httptest.NewRecorder()}
	tee := shadow.NewTee(u, httptest.NewRequest(http.MethodPost, "/", nil))
	tee.Header().Set("X-A", "1")
	tee.WriteHeader(201)
	tee.Header().Set("X-A", "2")
	seen := tee.End(limit)
	if got := seen.HeaderAtStatus().Get("X-A"); got != "1" {
		t.Errorf("X-A is %q, want 1", got)
	}
	if n, err := tee.Write([]byte("late")); n != 4 || err != nil || u.Body.String() != "late" {
		t.Errorf("%d, %v; the client has %q", n, err, u.Body)
	}
	if again := tee.End(3); again.Verdict != capture.Whole || string(again.Digest) != string(seen.Digest) {
		t.Errorf("after its end it has observed %+v", again)
	}

	for want, open := range map[int]error{200: nil, 0: errors.New("rendered outside")} {
		u.open = open
		silent := shadow.NewTee(u, httptest.NewRequest(http.MethodPost, "/", nil))
		silent.End(limit)
		if silent.WriteHeader(404); silent.End(limit).Status != want {
			t.Error("a late status counts")
		}
	}
}

// The methods that a handler may call by an assertion, or by http.ResponseController, reach the underlying writer. Without
// them there they fail, and nothing is observed.
func TestTeeMethods(t *testing.T) {
	for name, test := range map[string]struct {
		under http.ResponseWriter
		want  error
	}{
		"all":  {&under{ResponseRecorder: httptest.NewRecorder()}, nil},
		"none": {plain{httptest.NewRecorder()}, http.ErrNotSupported},
	} {
		tee := shadow.NewTee(test.under, httptest.NewRequest(http.MethodPost, "/", nil))
		_, _, hijack := tee.Hijack()
		for method, err := range map[string]error{
			"Flush": tee.FlushError(), "Hijack": hijack, "Push": tee.Push("/", nil), "SetReadDeadline": tee.SetReadDeadline(time.Time{}),
			"SetWriteDeadline": tee.SetWriteDeadline(time.Time{}), "EnableFullDuplex": tee.EnableFullDuplex(),
		} {
			if !errors.Is(err, test.want) {
				t.Errorf("%s: %s: %v, want %v", name, method, err, test.want)
			}
		}
		if got := tee.CloseNotify() != nil; got != (test.want == nil) {
			t.Errorf("%s: CloseNotify has a channel: %t", name, got)
		}
		if got := tee.End(limit); got.Started != (test.want == nil) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestProduct(t *testing.T) {
	p := shadow.Product{Status: 201, Digest: []byte("digest"), IsStored: true}
	const head = "\xc9\x01\x02\x00\x00" // of a tombstone
	if got, body, ok := p.Payload(); string(got) != head || string(body) != "digest" || !ok || string(p.Tombstone(true)) != head {
		t.Errorf("%x, %q, %t, %x", got, body, ok, p.Tombstone(true))
	}
	if !p.Stores(false) || p.NeedsNoTx() || !p.Sent() || p.String() != "answered" {
		t.Errorf("%+v", p)
	}
}
