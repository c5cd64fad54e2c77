package problem

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
)

// refusals are the kinds of a request that gets a problem.
func refusals() (all []run.Kind) {
	for kind := run.InFlight; kind < run.KindCount; kind++ {
		all = append(all, kind)
	}
	return all
}

// answer sends p to a client with these fields in its header.
func answer(p *Problem, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://shop.example/orders?secret=1", nil)
	r.Header = header
	w := httptest.NewRecorder()
	w.Header().Set("Link", "</style.css>")
	w.Header().Set("Content-Security-Policy", "outer")
	p.SetHeader(w.Header())
	p.Write(w, r)
	return w
}

// Each problem as a program gets it.
func TestDocument(t *testing.T) {
	for _, kind := range refusals() {
		p, isRetry, words := New(kind), kind.Answer().Retry, table[kind]
		w := answer(&p, http.Header{})
		h := w.Header()
		for field, want := range map[string]string{
			"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Content-Language": "en",
			"X-Content-Type-Options": "nosniff", "X-Should-Retry": fmt.Sprint(isRetry), "Content-Length": fmt.Sprint(w.Body.Len()),
			"Link": `</style.css> <` + draft + `>; rel="describedby"`, "Retry-After": map[bool]string{true: "1"}[isRetry],
			"Content-Security-Policy": "outer",
		} {
			if got := strings.Join(h[field], " "); got != want {
				t.Errorf("%s: %s %q, want %q", p.Type, field, got, want)
			}
		}
		want := Document{Type: "urn:onceguard:problem:" + words.name, Title: words.title, Status: words.status, Detail: words.detail}
		var got Document
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got != want || w.Code != words.status {
			t.Errorf("%d %s, %v; want %+v", w.Code, w.Body, err, want)
		}
	}
}

// Retry-After is in whole seconds, and at least one.
func TestRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration]string{0: "1", time.Second: "1", 1999 * time.Millisecond: "1", 2 * time.Second: "2", time.Hour: "3600"} {
		p := Problem{Document: Document{Retryable: true, RetryAfter: after}}
		h := http.Header{}
		if p.SetHeader(h); h.Get("Retry-After") != want || h.Get("X-Should-Retry") != "true" {
			t.Errorf("%v: %v, want %s", after, h, want)
		}
	}
}

// The detail names the place where the key belongs, and has no other text of the key function.
func TestNamePlace(t *testing.T) {
	for want, err := range map[string]error{
		" in the header X-Key,":    keyfunc.MissingError{In: "header", Name: "X-Key"},
		" in the member /id,":      fmt.Errorf("secret: %w", keyfunc.MissingError{In: "member", Name: "/id"}),
		" must carry an idempoten": errors.New("secret"),
	} {
		p := New(run.KeyMissing)
		if p.NamePlace(err); !strings.Contains(p.Detail, want) || strings.Contains(p.Detail, "secret") {
			t.Errorf("%v: %q, want %q in it", err, p.Detail, want)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{"key-reused": true, "in-flight": true, "": false, "reused": false, "urn:onceguard:problem:key-reused": false} {
		if got := IsType(name); got != want {
			t.Errorf("IsType(%q) = %t", name, got)
		}
	}
	for key, want := range map[string]string{"": "", "payments:{0c60}31812036": "urn:onceguard:key:31812036"} {
		if got := Instance(key); got != want {
			t.Errorf("Instance(%q) = %q, want %q", key, got, want)
		}
	}
}

// The page of each problem is for a shopper, and its policy allows its own style alone.
func TestPage(t *testing.T) {
	for _, kind := range refusals() {
		p := New(kind)
		p.Instance = instancePrefix + "a<b"
		w := answer(&p, http.Header{"Accept": {"text/html"}})
		got := w.Body.String()
		for _, want := range []string{
			`<meta name="viewport" content="width=device-width, initial-scale=1">`, "color-scheme:light dark",
			html.EscapeString(p.Title), html.EscapeString(p.Detail), "<h1>" + html.EscapeString(p.heading) + "</h1>",
			"please tell us this number: <code>a&lt;b</code>", fmt.Sprintf("(%d)", p.Status),
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
		allowed := "outer default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; "
		if policy := strings.Join(w.Header()["Content-Security-Policy"], " "); !strings.HasPrefix(policy, allowed) ||
			w.Header().Get("Content-Type") != "text/html; charset=utf-8" || w.Code != p.Status {
			t.Errorf("%s: %d, %v, want the policy %q", p.Type, w.Code, w.Header(), allowed)
		}
	}
	escaped := Problem{Document{Title: "<i>", Detail: `"&'`, Status: 409}, "<b>", `"&'`}
	if got := answer(&escaped, http.Header{"Accept": {"text/html"}}).Body.String(); !strings.Contains(got, "<h1>&lt;b&gt;</h1>\n<p>&#34;&amp;&#39;</p>") ||
		!strings.Contains(got, "&lt;i&gt; (409). &#34;") || strings.Contains(got, "<b>") || strings.Contains(got, "<code>") {
		t.Errorf("%s", got)
	}
}

// The way back is a path on this host, whatever the client says. Where the request came by TLS, a page that did not is no
// page of this origin.
func TestPageLeadsBack(t *testing.T) {
	p := New(run.KeyMissing)
	link := regexp.MustCompile(`<a href="([^"]*)">Back to the page</a>`)
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
		"http://shop.example/~":              "/~",
		"":                                   "",
		"/cart":                              "",
		"//shop.example/cart":                "",
		"http://shop.example":                "",
		"http://shop.example?a=1":            "",
		"http://evil.example/cart":           "",
		"http://shop.example:81/cart":        "",
		"http://shop.example@evil/cart":      "",
		"http://ann@shop.example/cart":       "",
		"http://shop.example//evil/cart":     "",
		"javascript://shop.example/alert(1)": "",
		"ftp://shop.example/cart":            "",
		"http://shop.example/a b":            "",
		"http://shop.example/ä":              "",
		"http://shop.example/%zz":            "",
	} {
		m := link.FindStringSubmatch(answer(&p, http.Header{"Accept": {"text/html"}, "Referer": {referer}}).Body.String())
		if want == "" && m != nil || want != "" && (m == nil || m[1] != want) {
			t.Errorf("Referer %q: link %q, want %q", referer, m, want)
		}
	}
	two := http.Header{"Accept": {"text/html"}, "Referer": {"http://shop.example/a", "http://shop.example/b"}}
	if got := answer(&p, two).Body.String(); strings.Contains(got, "<a ") {
		t.Errorf("a link for two Referers: %s", got)
	}
	for referer, want := range map[string]string{"https://shop.example/cart": "/cart", "http://shop.example/cart": ""} {
		r := &http.Request{Host: "shop.example", TLS: &tls.ConnectionState{}, Header: http.Header{"Referer": {referer}}}
		if got := cameFrom(r); got != want {
			t.Errorf("with TLS, Referer %q: %q, want %q", referer, got, want)
		}
	}
	if cameFrom(&http.Request{}) != "" {
		t.Error("without a Referer there is a way back")
	}
}
