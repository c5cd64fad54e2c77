package middleware_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// A fingerprint is compared with those that are stored: what is written today must be what was written before.
func TestFingerprintFormat(t *testing.T) {
	t.Parallel()
	const default1 = "64656661756c7431" // "default1"
	const form = "multipart/form-data; boundary="
	for _, test := range []struct{ name, method, target, contentType, body, want string }{
		{
			"JSON", "POST", "/payments?a=1", "application/json; charset=utf-8", payment,
			default1 + "8b72792a9e3a87e236fec718486081d1e3db04fb4cf851879c53792e5b829c72",
		},
		{
			"nothing", "PATCH", "/", "", "",
			default1 + "6dd9a052981fa68947f9c3d9674ff1100a3fa529bae59fd37194dc35b97307c4",
		},
		{
			"absolute", "POST", "http://example.com/a%2Fb?x", "text/plain", "x",
			default1 + "771a005d791bb8cb43f5293ce20523d321a7ed7fee9142851b4e03248683d856",
		},
		{
			"long path", "POST", "/" + strings.Repeat("p", 5000), "text/plain", strings.Repeat("x", 70000),
			default1 + "cf3006045d4ff9dc24bff5cf2c69d373152329d3f478294b66c671e7fc23d4be",
		},
		{
			"multipart", "POST", "/f", form + "b", "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n--b--\r\n",
			default1 + "07667a6671404901bbb15f69fea1f1109076751f32dcb0363f90b9de2dad6500",
		},
		{
			"multipart that does not parse", "POST", "/f", form + "c", "--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n",
			default1 + "e8b34881b1cd9d40b28be1d2bde5c501723486a2cdabab09cec240e17771bcec",
		},
	} {
		r := httptest.NewRequest(test.method, test.target, nil)
		r.Header.Set("Content-Type", test.contentType)
		if got := hex.EncodeToString(middleware.Fingerprint(r, []byte(test.body))); got != test.want {
			t.Errorf("%s: got  %s\nwant %s", test.name, got, test.want)
		}
	}
}

// A response stored under another name, or by the default rule, is neither compared nor replayed.
//
// conformance: 30
func TestFingerprintChanged(t *testing.T) {
	whole := func(_ *http.Request, body []byte) []byte { return body }
	byJSON := func(ignore ...string) []middleware.Option {
		return []middleware.Option{middleware.WithJSONFingerprint(ignore...)}
	}
	byName := func(name string) []middleware.Option {
		return []middleware.Option{middleware.WithFingerprint(name, whole)}
	}
	for name, test := range map[string]struct{ before, after []middleware.Option }{
		"default, then custom": {nil, byName("a")},
		"custom, then default": {byName("a"), nil},
		"another name":         {byName("a"), byName("b")},
		"default, then JSON":   {nil, byJSON()},
		"JSON, then default":   {byJSON(), nil},
		"another pointer":      {byJSON("/a"), byJSON("/b")},
		"one pointer more":     {byJSON("/a"), byJSON("/a", "/b")},
		"default, then body":   {nil, []middleware.Option{middleware.WithBodyFingerprint()}},
		"body, then JSON body": {[]middleware.Option{middleware.WithBodyFingerprint()}, []middleware.Option{middleware.WithJSONBodyFingerprint()}},
		"JSON, then JSON body": {byJSON(), []middleware.Option{middleware.WithJSONBodyFingerprint()}},
		"an unknown default":   {[]middleware.Option{middleware.WithNextRuleWritten()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				before, after := serve(t, b, behind(t, g, payOnce()), test.before...), serve(t, b, payOnce(), test.after...)
				other := body("application/json", "{}")
				done := before.inBackground(g)
				for _, edits := range [][]edit{nil, {other}} {
					after.wantRefused(after.send(edits...), http.StatusConflict, middleware.InFlight, "in-flight")
				}
				close(g.open)
				before.want(<-done, http.StatusCreated, middleware.Executed)
				for _, edits := range [][]edit{nil, {other}} {
					a := after.send(edits...)
					after.wantRefused(a, http.StatusConflict, middleware.FingerprintChanged, "fingerprint-changed")
					if a.replayed() || a.header.Get("X-Should-Retry") != "false" || a.header.Get("Retry-After") != "" {
						t.Errorf("header %v, want a refusal that is not to be repeated", a.header)
					}
				}
				after.wantRuns(0)
				before.want(before.send(), http.StatusCreated, middleware.Replayed)
				before.want(before.send(other), http.StatusUnprocessableEntity, middleware.Reused)
				before.wantRuns(1)
			})
		})
	}
}

// The default rule changes in two releases. The first reads the new kind, the second writes it: in a rolling deployment
// from each to the next both instances know each other's requests, in flight and settled.
//
// conformance: 30
func TestNextDefaultRule(t *testing.T) {
	releases := [][]middleware.Option{nil, {middleware.WithNextRuleRead()}, {middleware.WithNextRuleWritten()}}
	for i := range len(releases) - 1 {
		for _, pair := range [][2]int{{i, i + 1}, {i + 1, i}} {
			t.Run(fmt.Sprintf("from %d to %d", pair[0], pair[1]), func(t *testing.T) {
				both(t, func(t *testing.T, b redistest.Backend) {
					g := newGate()
					first := serve(t, b, behind(t, g, payOnce()), releases[pair[0]]...)
					second := serve(t, b, payOnce(), releases[pair[1]]...)
					other := body("application/json", "{}")
					done := first.inBackground(g)
					second.want(second.send(), http.StatusConflict, middleware.InFlight)
					second.want(second.send(other), http.StatusUnprocessableEntity, middleware.Reused)
					close(g.open)
					first.want(<-done, http.StatusCreated, middleware.Executed)
					second.want(second.send(), http.StatusCreated, middleware.Replayed)
					second.want(second.send(other), http.StatusUnprocessableEntity, middleware.Reused)
					second.wantRuns(0)
				})
			})
		}
	}
}

// The kind of a custom fingerprint is stored, so it never changes. It never equals that of a default rule.
func TestCustomKind(t *testing.T) {
	t.Parallel()
	if got := hex.EncodeToString(middleware.CustomKind("amount")); got != "e4cd3dc6d4b6b654" {
		t.Errorf("got %s", got)
	}
	for n := range 100 {
		if kind := middleware.CustomKind(fmt.Sprint(n)); kind[0] < 0x80 {
			t.Errorf("%d: the kind %q may be a default rule's", n, kind)
		}
	}
}

// JSON bodies that say the same are the same request, without the parts that are ignored. Others are not.
func TestWithJSONFingerprint(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce(), middleware.WithJSONFingerprint("/sent_at", "/meta/try"))
		const jsonType = "application/json"
		n := 0
		for first, others := range map[string]map[string]bool{ // whether they are the same
			`{"amount":1250,"currency":"EUR","sent_at":1,"meta":{"try":1}}`: {
				"{ \"currency\": \"E\\u0055R\", \"meta\": {}, \"amount\": 1250 }": true,
				`{"amount":1250,"currency":"EUR","sent_at":2,"meta":{"try":2}}`:   true,
				`{"amount":1250.0,"currency":"EUR","meta":{}}`:                    false,
				`{"amount":1250,"currency":"EUR"}`:                                false,
				`{"amount":1251,"currency":"EUR","meta":{}}`:                      false,
				`{"amount":1250,"Amount":1250,"currency":"EUR","meta":{}}`:        false,
			},
			`{"amount":9007199254740993}`: {`{"amount":9007199254740992}`: false, `{"amount": 9007199254740993}`: true},
			`{"amount":1,"amount":2}`:     {`{"amount":1,"amount":2}`: true, `{"amount":1, "amount":2}`: false},
			`not JSON`:                    {`not JSON`: true, `not  JSON`: false},
		} {
			n++
			thisKey := key(fmt.Sprintf(`"k%d"`, n))
			s.want(s.send(thisKey, body(jsonType, first)), http.StatusCreated, middleware.Executed)
			for other, same := range others {
				a := s.send(thisKey, body(jsonType, other))
				if e := s.event(); same != (e.Outcome == middleware.Replayed) || !same && e.Outcome != middleware.Reused {
					t.Errorf("%s, then %s: %s, %d, want the same: %t", first, other, e.Outcome, a.status, same)
				}
			}
			s.want(s.send(thisKey, body("text/plain", first)), http.StatusUnprocessableEntity, middleware.Reused)
			s.want(s.send(thisKey, body(jsonType, first), target("/payments?a=1")), http.StatusUnprocessableEntity, middleware.Reused)
		}
		s.wantRuns(int64(n))
	})
}

// The list of pointers is a set. What is stored is compared later, so it never changes.
func TestJSONFingerprintFormat(t *testing.T) {
	t.Parallel()
	if got := hex.EncodeToString(middleware.JSONKind()); got != "d0b8de5f0db44da4" {
		t.Errorf("no pointers: %s", got)
	}
	if got := hex.EncodeToString(middleware.JSONKind("/a", "/b")); got != "b1d995a97427ec4a" {
		t.Errorf("two pointers: %s", got)
	}
	if a, b := middleware.JSONKind("/a", "/b"), middleware.JSONKind("/b", "/a", "/b"); string(a) != string(b) {
		t.Errorf("the order and number of pointers count: %x, %x", a, b)
	}
	r := httptest.NewRequest(http.MethodPost, "/payments?a=1", nil)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	for text, want := range map[string]string{
		`{"b":[1,2.50,"\u00e9",null,true],"a":{"":{}},"sent":1}`: "ae479df90c110c15f9a315e22abcfdd71a8c9810c6cc55fe5175544b02bbe315530eefacaf809f47",
		`{"a":1,"A":2}`: "ae479df90c110c15826c5855b5e95dc77a3556e9e2e103eb1ae9d321d81ce4d05cf1cb5d60eaf504",
	} {
		got := hex.EncodeToString(middleware.JSONFingerprint(r, []byte(text), "/sent"))
		if got != want {
			t.Errorf("%s: got  %s\nwant %s", text, got, want)
		}
	}
}

func TestWithJSONFingerprintPanics(t *testing.T) {
	t.Parallel()
	for _, pointer := range []string{"", "sent_at", "/a~2", "#/a"} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, "middleware.WithJSONFingerprint") || !strings.Contains(got, strconv.Quote(pointer)) {
					t.Errorf("%q: panic %q, want one that names the option and the pointer", pointer, got)
				}
			}()
			middleware.WithJSONFingerprint("/a", pointer)
		}()
	}
}

// A fingerprint may ask for a form value, and so may the handler.
func TestFingerprintParsesTheForm(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		amount := func(r *http.Request, _ []byte) []byte { return []byte(r.FormValue("amount")) }
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "paid "+r.FormValue("amount"))
		}, middleware.WithFingerprint("amount", amount))
		const form = "application/x-www-form-urlencoded"
		a := s.send(body(form, "amount=10"))
		s.want(a, http.StatusCreated, middleware.Executed)
		if a.body != "paid 10" {
			t.Errorf("the handler saw %q", a.body)
		}
		a = s.send(body(form, "amount=1000000"))
		s.want(a, http.StatusUnprocessableEntity, middleware.Reused)
	})
}

// With the rules for bodies alone, query and media type do not count, and the route does, whatever the key is made of.
//
// fault: the same key and body sent to another operation, under a key without the route -> 422, not that one's response
func TestBodyFingerprints(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		const same, other, replayed, reused = payment, `{"amount":1250}`, http.StatusCreated, http.StatusUnprocessableEntity
		respelled := `{ "currency":"EUR", "amount":125e1}`
		for name, c := range map[string]struct {
			opt       middleware.Option
			respelled int
		}{
			"bytes": {middleware.WithBodyFingerprint(), reused},
			"JSON":  {middleware.WithJSONBodyFingerprint(), replayed},
		} {
			t.Run(name, func(t *testing.T) {
				key := keyfunc.Compose(keyfunc.Header("Idempotency-Key"), func(*http.Request) (string, error) { return name, nil })
				s := serveKeyed(t, newLocker(t, b.Client(t)), key, payOnce(), c.opt)
				s.want(s.send(), http.StatusCreated, middleware.Executed)
				for what, test := range map[string]struct {
					edits  []edit
					status int
				}{
					"the same":           {nil, replayed},
					"another query":      {[]edit{target("/payments?a=1")}, replayed},
					"another media type": {[]edit{body("text/plain", same)}, replayed},
					"no media type":      {[]edit{func(r *http.Request) { r.Header.Del("Content-Type") }}, replayed},
					"another body":       {[]edit{body("application/json", other)}, reused},
					"no body":            {[]edit{body("application/json", "")}, reused},
					"spelled otherwise":  {[]edit{body("application/json", respelled)}, c.respelled},
					"null in it":         {[]edit{body("application/json", `{"amount":1250,"currency":"EUR","note":null}`)}, reused},
					"another path":       {[]edit{target("/refunds")}, reused},
					"another method":     {[]edit{method(http.MethodPatch)}, reused},
				} {
					if a := s.send(test.edits...); a.status != test.status || a.replayed() != (test.status == replayed) {
						t.Errorf("%s: got %d, replayed %t, want %d", what, a.status, a.replayed(), test.status)
					}
					s.event()
				}
				s.wantRuns(1)
			})
		}
	})
}
