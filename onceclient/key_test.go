package onceclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

// version7 matches a UUID of version 7.
var version7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// A key is a UUID that begins with the time, and no other of the same instant is equal.
func TestNewKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // where time stands still
		seen, hour := map[string]bool{}, ""
		for range 5000 {
			key := onceclient.NewKey()
			if seen[key] || !version7.MatchString(key) {
				t.Fatalf("got %q", key)
			}
			seen[key], hour = true, key[:13]
		}
		ms, err := strconv.ParseInt(strings.ReplaceAll(hour, "-", ""), 16, 64)
		if !time.UnixMilli(ms).Equal(time.Now()) || err != nil {
			t.Errorf("a key tells %v, %v, want %v", time.UnixMilli(ms), err, time.Now())
		}
	})
}

// Each request has a key of its own, the same in all tries.
func TestGeneratedKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		before := ""
		for range 3 {
			base := &fakeBase{steps: []step{fail, created}}
			resp, _, err := send(t, t.Context(), base)
			if err != nil {
				t.Fatal(err)
			}
			key := base.key()
			if base.heads[1].Get("Idempotency-Key") != key || key == before || resp.Request.Header.Get("Idempotency-Key") != key ||
				!version7.MatchString(strings.Trim(key, `"`)) {
				t.Errorf("sent %q", base.heads)
			}
			before = key
		}
	})
}

// The key that the caller gave is sent as a quoted string.
func TestKeyOfTheContext(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"order-7", "a b", `say "hi"`, `back\slash`, `\"`, "~", strings.Repeat("k", 255)} {
		base := &fakeBase{steps: []step{created}}
		if _, _, err := send(t, onceclient.WithKey(t.Context(), key), base); err != nil {
			t.Fatal(err)
		}
		want := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if got := base.heads[0].Get("Idempotency-Key"); got != want || onceclient.Unquote(got) != key {
			t.Errorf("%q: sent %q, want %q", key, got, want)
		}
	}
	for _, key := range []string{"", strings.Repeat("k", 256), "tab\t", "line\n", "zoë", "\x7f"} {
		base := &fakeBase{steps: []step{created}}
		if _, _, err := send(t, onceclient.WithKey(t.Context(), key), base); !errors.Is(err, onceclient.ErrInvalidKey) || base.tries() != 0 {
			t.Errorf("%q: got %v after %d tries", key, err, base.tries())
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("order-7")
	f.Add(`say "hi" \`)
	f.Fuzz(func(t *testing.T, key string) {
		if got := onceclient.Unquote(onceclient.Quote(key)); got != key {
			t.Errorf("got %q, want %q", got, key)
		}
	})
}

// A header that the caller has set is kept. Some servers take an empty key for none: a POST that is repeated with it would
// take effect twice.
func TestHeader(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header http.Header
		opt    onceclient.Option
		sentIn string
		want   string // "": ErrInvalidKey
	}{
		"kept":           {http.Header{"Idempotency-Key": {"mine"}}, nil, "Idempotency-Key", "mine"},
		"in lower case":  {http.Header{"idempotency-key": {"mine"}}, nil, "idempotency-key", "mine"}, // as HTTP/2 has it
		"without values": {http.Header{"Idempotency-Key": nil}, nil, "Idempotency-Key", `"of the context"`},
		"another name":   {nil, onceclient.WithHeader("x-request-key"), "X-Request-Key", `"of the context"`},
		"empty":          {http.Header{"Idempotency-Key": {""}}, nil, "", ""},
		"a space":        {http.Header{"Idempotency-Key": {" "}}, nil, "", ""},
		"empty quotes":   {http.Header{"Idempotency-Key": {`""`}}, nil, "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			base, b := &fakeBase{steps: []step{fail, created}}, newBody(strings.NewReader("book"))
			req := postBody(t, onceclient.WithKey(t.Context(), "of the context"), b, 4)
			req.Header = test.header
			resp, err := newTransport(base, test.opt).RoundTrip(req)
			<-b.closed
			if test.want == "" {
				if !errors.Is(err, onceclient.ErrInvalidKey) || base.tries() != 0 {
					t.Errorf("%s: got %v after %d tries", name, err, base.tries())
				}
				return
			}
			if err != nil {
				t.Fatal(name, err)
			}
			resp.Body.Close()
			for _, h := range base.heads {
				if got := h[test.sentIn]; len(got) != 1 || got[0] != test.want || len(h) != 1 {
					t.Errorf("%s: sent %q, want %q", name, got, test.want)
				}
			}
		})
	}
}

// 307 and 308 keep the method, and so the key; 301 and 303 make a GET of it, without a key.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		301: `POST/old "mine",GET/new `, 303: `POST/old "mine",GET/new `,
		307: `POST/old "mine",POST/new "mine",POST/new "mine"`, 308: `POST/old "mine",POST/new "mine",POST/new "mine"`,
	} {
		for _, keyed := range []func(context.Context) context.Context{
			func(ctx context.Context) context.Context { return ctx },
			func(ctx context.Context) context.Context { return onceclient.WithKey(ctx, "mine") },
		} {
			synctest.Test(t, func(t *testing.T) {
				var seen []string
				base := tripper(func(r *http.Request) (*http.Response, error) {
					seen = append(seen, r.Method+r.URL.Path+" "+r.Header.Get("Idempotency-Key"))
					if r.URL.Path == "/old" {
						return answer(status, "", "Location: /new")(r)
					}
					return answer(503, "")(r)
				})
				client := &http.Client{Transport: onceclient.New(base, onceclient.WithLimit(time.Second), onceclient.WithBackoff(time.Second, time.Second))}
				_, _, _ = do(t, client, post(t, keyed(t.Context()), "http://shop.test/old", strings.NewReader("book")))
				key := strings.TrimPrefix(seen[0], "POST/old ")
				got := strings.ReplaceAll(strings.Join(seen, ","), key, `"mine"`)
				if key == "" || !strings.HasPrefix(got, want) {
					t.Errorf("%d: the server saw %q", status, seen)
				}
			})
		}
	}
}

// Other methods pass: no key, one try, the request itself. So does CloseIdleConnections.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	base := &closing{}
	for _, method := range []string{"", "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post"} {
		req := postBody(t, onceclient.WithKey(t.Context(), "k"), nil, 0)
		req.Method = method
		if _, err := onceclient.New(base).RoundTrip(req); base.got != req || err != errNetwork || len(req.Header) != 0 {
			t.Errorf("%s: got %v, %v", method, base.got, err)
		}
	}
	client := &http.Client{Transport: onceclient.New(base)}
	if client.CloseIdleConnections(); base.closed != 1 {
		t.Errorf("closed %d times, want once", base.closed)
	}
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		synctest.Test(t, func(t *testing.T) {
			covered := &fakeBase{steps: []step{fail, created}}
			req := postBody(t, t.Context(), body, 0)
			req.Method = http.MethodPut
			resp, err := onceclient.New(covered, onceclient.WithMethods(http.MethodPut)).RoundTrip(req)
			if err != nil || covered.tries() != 2 || covered.key() == "" {
				t.Fatalf("PUT covered: %v after %d tries", err, covered.tries())
			}
			resp.Body.Close()
		})
	}
}

type closing struct {
	got    *http.Request
	closed int
}

func (c *closing) RoundTrip(req *http.Request) (*http.Response, error) {
	c.got = req
	return nil, errNetwork
}

func (c *closing) CloseIdleConnections() { c.closed++ }

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The key reaches neither the text of an error nor the observer, and so no log.
func TestKeyIsNotLogged(t *testing.T) {
	t.Parallel()
	const key = "secret-key-of-ann"
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		opt := onceclient.WithObserver(func(_ context.Context, a onceclient.Attempt) { fmt.Fprintf(&out, "%v %#v", a, a) })
		for _, first := range []step{fail, problem(409, "in-flight"), hang} {
			_, _, err := send(t, onceclient.WithKey(t.Context(), key), &fakeBase{steps: []step{first}}, opt)
			if e := gaveUp(t, err); e.Key != key {
				t.Errorf("the error has the key %q", e.Key)
			}
			fmt.Fprintf(&out, "%v %+v", err, err)
		}
		_, _, err := send(t, onceclient.WithKey(t.Context(), key+"\n"), &fakeBase{steps: []step{created}}, opt)
		if fmt.Fprint(&out, err); strings.Contains(out.String(), key) {
			t.Errorf("logged:\n%s", out.String())
		}
	})
}
