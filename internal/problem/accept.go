package problem

import (
	"mime"
	"strconv"
	"strings"
)

// prefersHTML reports whether the Accept header fields (RFC 9110 section 12.5.1) rank text/html above JSON, as a
// browser's do. A client that accepts anything gets JSON, and so does one whose fields are longer than any browser's: to
// parse them would take long, and needs no valid key.
func prefersHTML(accept []string) bool {
	const maxBytes = 4 << 10
	html, json := 0.0, 0.0
	htmlRank, jsonRank := 0, 0
	size := 0
	for _, field := range accept {
		if size += 1 + len(field); size > maxBytes {
			return false
		}
		for mediaRange := range strings.SplitSeq(field, ",") {
			name, q := quality(mediaRange)
			if rank := specificity(name, "text/html"); rank > htmlRank {
				html, htmlRank = q, rank
			}
			rank := max(specificity(name, "application/problem+json"), specificity(name, "application/json"))
			if rank > jsonRank || rank == jsonRank && rank > 0 && q > json {
				json, jsonRank = q, rank
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

// specificity ranks how closely a media range names a media type: 3 for the type itself, 2 for "type/*", 1 for "*/*",
// 0 for no match.
func specificity(name, mediaType string) int {
	major, _, _ := strings.Cut(mediaType, "/")
	switch {
	case name == mediaType:
		return 3
	case name == major+"/*":
		return 2
	case name == "*/*":
		return 1
	}
	return 0
}
