package middleware_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

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

// A fingerprint is compared with those that are stored: what is written today must be what was written before.
func TestFingerprintFormat(t *testing.T) {
	t.Parallel()
	const default1 = "64656661756c7431" // "default1"
	const form = "multipart/form-data; boundary="
	for _, test := range []struct{ name, method, target, contentType, body, want string }{
		{"JSON", "POST", "/payments?a=1", "application/json; charset=utf-8", payment, "8b72792a9e3a87e236fec718486081d1e3db04fb4cf851879c53792e5b829c72"},
		{"nothing", "PATCH", "/", "", "", "6dd9a052981fa68947f9c3d9674ff1100a3fa529bae59fd37194dc35b97307c4"},
		{"absolute", "POST", "http://example.com/a%2Fb?x", "text/plain", "x", "771a005d791bb8cb43f5293ce20523d321a7ed7fee9142851b4e03248683d856"},
		{"multipart", "POST", "/f", form + "b", "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n--b--\r\n", "07667a6671404901bbb15f69fea1f1109076751f32dcb0363f90b9de2dad6500"},
	} {
		r := httptest.NewRequest(test.method, test.target, nil)
		r.Header.Set("Content-Type", test.contentType)
		if got := hex.EncodeToString(middleware.Fingerprint(r, []byte(test.body))); got != default1+test.want {
			t.Errorf("%s: got  %s\nwant %s", test.name, got, test.want)
		}
	}
	for want, got := range map[string][]byte{
		"e4cd3dc6d4b6b654": middleware.CustomKind("amount"), "d0b8de5f0db44da4": middleware.JSONKind(),
		"b1d995a97427ec4a": middleware.JSONKind("/b", "/a", "/b"), // the list of pointers is a set
	} {
		if hex.EncodeToString(got) != want {
			t.Errorf("kind %x, want %s", got, want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/payments?a=1", nil)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	got := middleware.JSONFingerprint(r, []byte(`{"b":[1,2.50,"\u00e9",null,true],"a":{"":{}},"sent":1}`), "/sent")
	if want := "ae479df90c110c15f9a315e22abcfdd71a8c9810c6cc55fe5175544b02bbe315530eefacaf809f47"; hex.EncodeToString(got) != want {
		t.Errorf("JSON: got %x, want %s", got, want)
	}
	for n := range 100 {
		if kind := middleware.CustomKind(fmt.Sprint(n)); kind[0] < 0x80 {
			t.Errorf("%d: the kind %q may be a default rule's", n, kind)
		}
	}
}

// Which requests are the same by each rule. How bodies are compared is in internal/canonical.
//
// fault: the same key and body sent to another operation, under a key without the route -> 422, not that one's response
//
// conformance: 29, 30, 31
func TestSameRequest(t *testing.T) {
	t.Parallel()
	const form, jsonType = "application/x-www-form-urlencoded", "application/json"
	multipart := func(boundary, amount string) edit {
		return body("multipart/form-data; boundary="+boundary,
			"--"+boundary+"\r\nContent-Disposition: form-data; name=amount\r\n\r\n"+amount+"\r\n--"+boundary+"--\r\n")
	}
	respelled := body(jsonType, `{ "currency":"EUR", "amount":125e1}`)
	reordered := body(jsonType, `{ "currency":"E\u0055R", "amount":1250}`)
	first := body(jsonType, payment)
	amount := middleware.WithFingerprint("amount", func(r *http.Request, _ []byte) []byte { return []byte(r.FormValue("amount")) })
	rules := map[string][]middleware.Option{
		"default": nil, "amount": {amount}, "JSON": {middleware.WithJSONFingerprint("/sent_at")},
		"body": {middleware.WithBodyFingerprint()}, "JSON body": {middleware.WithJSONBodyFingerprint()},
	}
	for name, test := range map[string]struct {
		rule          string
		first, second edit
		same          bool
	}{
		"credential":            {"default", first, func(r *http.Request) { r.SetBasicAuth("ann", "a new password") }, true},
		"trace id":              {"default", first, header("Traceparent", someTrace), true},
		"framing":               {"default", first, func(r *http.Request) { r.ContentLength = -1 }, true},
		"media type parameter":  {"default", first, body("Application/JSON; charset=utf-8", payment), true},
		"spelled otherwise":     {"default", first, reordered, false},
		"another query":         {"default", first, target("/payments?a=1"), false},
		"another boundary":      {"default", multipart("aaa", "12"), multipart("bbb", "12"), true},
		"another part":          {"default", multipart("aaa", "12"), multipart("bbb", "13"), false},
		"a form's field":        {"amount", body(form, "amount=10&x=1"), body(form, "x=2&amount=10"), true},
		"another field":         {"amount", body(form, "amount=10&x=1"), body(form, "x=1&amount=11"), false},
		"JSON, reordered":       {"JSON", first, reordered, true},
		"JSON, ignored":         {"JSON", first, body(jsonType, `{"amount":1250,"currency":"EUR","sent_at":2}`), true},
		"JSON, number":          {"JSON", first, respelled, false},
		"JSON, another query":   {"JSON", first, target("/payments?a=1"), false},
		"JSON, as text":         {"JSON", first, body("text/plain", payment), false},
		"body, another type":    {"body", first, func(r *http.Request) { r.Header.Del("Content-Type") }, true},
		"body, another query":   {"body", first, target("/payments?a=1"), true},
		"body, reordered":       {"body", first, reordered, false},
		"body, another path":    {"body", first, target("/refunds"), false},
		"body, another method":  {"body", first, method(http.MethodPatch), false},
		"body, none":            {"body", first, body(jsonType, ""), false},
		"JSON body, respelled":  {"JSON body", first, respelled, true},
		"JSON body, more":       {"JSON body", first, body(jsonType, `{"amount":1250,"currency":"EUR","note":null}`), false},
		"JSON body, other path": {"JSON body", first, target("/refunds"), false},
	} {
		s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), headerKey, echo, rules[test.rule]...)
		s.want(s.send(test.first), http.StatusOK, middleware.Executed)
		want, status := middleware.Reused, http.StatusUnprocessableEntity
		if test.same {
			want, status = middleware.Replayed, http.StatusOK
		}
		if s.want(s.send(test.second), status, want); t.Failed() {
			t.Fatal(name)
		}
	}
}
