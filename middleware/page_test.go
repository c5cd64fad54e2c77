package middleware_test

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// page answers with a problem to a browser whose request came from the page given.
func page(p middleware.Problem, referer ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://shop.example/orders?secret=1", nil)
	r.Header.Set("Accept", "text/html")
	r.Header["Referer"] = referer
	w := httptest.NewRecorder()
	middleware.Refuse(w, r, p)
	return w
}

// conformance: 36
func TestPage(t *testing.T) {
	t.Parallel()
	for _, p := range middleware.Problems() {
		w := page(p)
		got := w.Body.String()
		for _, want := range []string{
			`<meta name="viewport" content="width=device-width, initial-scale=1">`, "color-scheme:light dark",
			html.EscapeString(p.Title), html.EscapeString(p.Detail),
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in %s", p.Type, want, got)
			}
		}
		shown, _, _ := strings.Cut(got, "<details>")
		for _, wrong := range []string{"<script", "secret", "idempotency", "Idempotency", "<a "} {
			if strings.Contains(shown, wrong) {
				t.Errorf("%s: %q in %s", p.Type, wrong, got)
			}
		}
		_, style, _ := strings.Cut(got, "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		sum := sha256.Sum256([]byte(style))
		allowed := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; "
		if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, allowed) {
			t.Errorf("%s: Content-Security-Policy %q, want %q", p.Type, policy, allowed)
		}
	}
}

// A shopper can read out the number by which support staff finds the key.
func TestPageHasAReference(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce(), middleware.WithRequired())
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		a := s.send(body("application/json", "{}"), header("Accept", "text/html"))
		e := s.want(a, http.StatusUnprocessableEntity, middleware.Reused)
		_, hash, _ := strings.Cut(e.Key, "}")
		if want := "please tell us this number: <code>" + hash + "</code>"; !strings.Contains(a.body, want) {
			t.Errorf("no %q in %s", want, a.body)
		}
		if a := s.send(noKey, header("Accept", "text/html")); strings.Contains(a.body, "<code>") {
			t.Errorf("a reference without a key: %s", a.body)
		}
	})
}

// The way back is a path on this host, whatever the client says.
func TestPageLeadsBack(t *testing.T) {
	t.Parallel()
	for referer, want := range map[string]string{
		"http://shop.example/cart":           "/cart",
		"http://shop.example/cart?a=1&b=2":   "/cart?a=1&amp;b=2",
		"http://shop.example/cart#top":       "/cart",
		"http://SHOP.example/":               "/",
		"https://shop.example/cart":          "/cart", // a proxy ends TLS
		"http://shop.example/a%2Fb%20c":      "/a%2Fb%20c",
		"http://shop.example/?q=\"><b>":      "/?q=&#34;&gt;&lt;b&gt;",
		"http://shop.example/.//evil":        "/.//evil",
		"http://shop.example/\\evil":         "/%5Cevil",
		"":                                   "",
		"/cart":                              "",
		"//shop.example/cart":                "",
		"http://shop.example":                "",
		"http://shop.example?a=1":            "",
		"http://evil.example/cart":           "",
		"http://shop.example:81/cart":        "",
		"http://shop.example.evil/cart":      "",
		"http://shop.example@evil/cart":      "",
		"http://ann@shop.example/cart":       "",
		"http://shop.example//evil/cart":     "",
		"javascript://shop.example/alert(1)": "",
		"javascript:alert(1)":                "",
		"ftp://shop.example/cart":            "",
		"http://shop.example/a b":            "",
		"http://shop.example/a\tb":           "",
		"http://shop.example/ä":              "",
		"http://shop.example/%zz":            "",
		"data:text/html,shop.example":        "",
	} {
		got := page(middleware.Problems()[0], referer).Body.String()
		if m := regexp.MustCompile(`<a href="([^"]*)">Back to the page</a>`).FindStringSubmatch(got); want == "" && m != nil ||
			want != "" && (m == nil || m[1] != want) {
			t.Errorf("Referer %q: link %q, want %q", referer, m, want)
		}
	}
	if got := page(middleware.Problems()[0], "http://shop.example/a", "http://shop.example/b").Body.String(); strings.Contains(got, "<a ") {
		t.Errorf("a link for two Referers: %s", got)
	}
}

// Where the request came by TLS, a page that did not is no page of this origin.
func TestPageLeadsBackToTheSameScheme(t *testing.T) {
	t.Parallel()
	for referer, want := range map[string]bool{"https://shop.example/cart": true, "http://shop.example/cart": false} {
		r := httptest.NewRequest(http.MethodPost, "https://shop.example/orders", nil)
		r.TLS = &tls.ConnectionState{}
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Referer", referer)
		w := httptest.NewRecorder()
		middleware.Refuse(w, r, middleware.Problems()[0])
		if got := strings.Contains(w.Body.String(), `<a href="/cart">`); got != want {
			t.Errorf("Referer %q: a link %t, want %t", referer, got, want)
		}
	}
}

// The page's policy stands beside one that an outer middleware has set: browsers keep both.
func TestPageKeepsTheOuterPolicy(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce(), middleware.WithRequired())
		s.outer = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
				next.ServeHTTP(w, r)
			})
		}
		a := s.send(noKey, header("Accept", "text/html"))
		if got := strings.Join(a.header["Content-Security-Policy"], ", "); !strings.Contains(got, "frame-ancestors") {
			t.Errorf("policy %q", got)
		}
	})
}
