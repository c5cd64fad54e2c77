package problem

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
)

const pageStyle = `:root{color-scheme:light dark}` +
	`body{margin:0 auto;max-width:32rem;padding:12vh 1.25rem 2rem;font:1rem/1.5 system-ui,sans-serif}` +
	`h1{font-size:1.5rem;line-height:1.25}` +
	`.reference{font-size:.875rem;opacity:.75}code{overflow-wrap:anywhere}` +
	`details{margin-top:3rem;font-size:.875rem;opacity:.75}`

// pagePolicy is the page's Content-Security-Policy. It allows the page's own style, no scripts, and nothing that is
// loaded.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}()

// html returns the page of p, with a link back to where the request came from.
func (p Problem) html(r *http.Request) []byte {
	back := ""
	if to := cameFrom(r); to != "" {
		back = fmt.Sprintf("\n<p><a href=\"%s\">Back to the page</a></p>", html.EscapeString(to))
	}
	reference := ""
	if hash, ok := strings.CutPrefix(p.Instance, instancePrefix); ok {
		reference = fmt.Sprintf("\n<p class=\"reference\">If you ask us about this, please tell us this number: <code>%s</code></p>",
			html.EscapeString(hash))
	}
	return fmt.Appendf(nil, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>%s</style>
</head>
<body>
<h1>%[1]s</h1>
<p>%[3]s</p>%[4]s%[8]s
<details>
<summary>Technical details</summary>
<p>%[5]s (%[6]d). %[7]s</p>
</details>
</body>
</html>
`, html.EscapeString(p.heading), pageStyle, html.EscapeString(p.text), back,
		html.EscapeString(p.Title), p.Status, html.EscapeString(p.Detail), reference)
}

// cameFrom returns the path and query of the Referer (RFC 9110 section 10.1.3) if that is a page of the same origin,
// and otherwise an empty string. The client chooses the Referer, but a path alone cannot lead to another host. If the
// request came without TLS, a proxy may have ended TLS, so both schemes are accepted.
func cameFrom(r *http.Request) string {
	lines := r.Header["Referer"]
	if len(lines) != 1 || strings.ContainsFunc(lines[0], func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	from, err := url.Parse(lines[0])
	if err != nil || from.User != nil || from.Host == "" || !strings.EqualFold(from.Host, r.Host) {
		return ""
	}
	if from.Scheme != "https" && (from.Scheme != "http" || r.TLS != nil) {
		return ""
	}
	path := from.EscapedPath() // a backslash, which browsers take for a slash, is escaped
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return ""
	}
	if from.RawQuery != "" {
		path += "?" + from.RawQuery
	}
	return path
}
