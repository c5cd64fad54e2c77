package problem

import (
	"mime"
	"strconv"
	"strings"
)

// prefersHTML reports whether the Accept header fields (RFC 9110 section 12.5.1) name text/html with more weight than JSON, as
// a browser's do. Ranges such as */* do not count. A client that accepts anything gets JSON, and so does one whose fields are
// longer than any browser's: to parse them would take long, and needs no valid key.
func prefersHTML(accept []string) bool {
	const maxBytes = 4 << 10
	html, json, size := 0.0, 0.0, 0
	for _, field := range accept {
		if size += 1 + len(field); size > maxBytes {
			return false
		}
		for mediaRange := range strings.SplitSeq(field, ",") {
			switch name, q := quality(mediaRange); name {
			case "text/html":
				html = max(html, q)
			case "application/problem+json", "application/json":
				json = max(json, q)
			}
		}
	}
	return html > json
}

// quality splits a media range into its name, in lower case, and its weight. The weight is 1 if none is given, and 0 if
// it is malformed.
func quality(mediaRange string) (name string, q float64) {
	name, params, _ := mime.ParseMediaType(mediaRange)
	text, isGiven := params["q"]
	if !isGiven {
		return name, 1
	}
	q, err := strconv.ParseFloat(text, 64)
	if err != nil || q < 0 || q > 1 {
		return name, 0
	}
	return name, q
}
