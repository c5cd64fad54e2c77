package keyfunc_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

func TestRoute(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, method, requestURI, url string
		method2, path2                string // the parts that the key must have
	}{
		{"origin form", "POST", "/orders", "/elsewhere", "POST", "/orders"},
		{"without the query", "POST", "/orders?a=/b", "/orders?a=/b", "POST", "/orders"},
		{"not decoded", "POST", "/a%2Fb/../c//d", "/", "POST", "/a%2Fb/../c//d"},
		{"two slashes are no authority", "POST", "//host/a", "/", "POST", "//host/a"},
		{"a URL in the path", "POST", "/go/http://x/y", "/", "POST", "/go/http://x/y"},
		{"absolute form", "POST", "http://example.com/orders?a", "/", "POST", "/orders"},
		{"absolute form, not decoded", "POST", "https://u@example.com:8/a%2Fb", "/", "POST", "/a%2Fb"},
		{"absolute form without path", "POST", "http://example.com", "/", "POST", "/"},
		{"absolute form, query only", "POST", "http://example.com?a=/b", "/", "POST", "/"},
		{"asterisk", "OPTIONS", "*", "*", "OPTIONS", "*"},
		{"authority", "CONNECT", "example.com:443", "", "CONNECT", "example.com:443"},
		{"query only", "POST", "?a", "/", "POST", "/"},
		{"by hand", "POST", "", "http://example.com/orders?a", "POST", "/orders"},
		{"by hand, escaped", "POST", "", "/a%2Fb", "POST", "/a%2Fb"},
		{"by hand, no path", "POST", "", "http://example.com", "POST", "/"},
		{"no method", "", "/orders", "/", "GET", "/orders"},
		{"method's case", "post", "/orders", "/", "post", "/orders"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(c.url)
			if err != nil {
				t.Fatal(err)
			}
			r := &http.Request{Method: c.method, RequestURI: c.requestURI, URL: u}
			want, err := keyfunc.Compose(fixed(c.method2, nil), fixed(c.path2, nil))(r)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, keyfunc.Route(), r, want, nil)
		})
	}
}
