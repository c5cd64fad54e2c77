package problem

import (
	"strconv"
	"strings"
)

// prefersHTML reports whether the Accept header fields (RFC 9110 section 12.5.1) rank text/html above JSON, as a
// browser's do. A client that accepts anything gets JSON.
func prefersHTML(accept []string) bool {
	html, json := 0.0, 0.0
	htmlRank, jsonRank := 0, 0
	for _, field := range accept {
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

// quality splits a media range into its name and its weight. The weight is 1 if none is given, and 0 if it is
// malformed.
func quality(mediaRange string) (name string, q float64) {
	name, params, _ := strings.Cut(mediaRange, ";")
	for param := range strings.SplitSeq(params, ";") {
		if k, v, _ := strings.Cut(strings.TrimSpace(param), "="); strings.EqualFold(k, "q") {
			q, err := strconv.ParseFloat(v, 64)
			if err != nil || q < 0 || q > 1 {
				q = 0
			}
			return strings.TrimSpace(name), q
		}
	}
	return strings.TrimSpace(name), 1
}

// specificity ranks how closely a media range names a media type: 3 for the type itself, 2 for "type/*", 1 for "*/*",
// 0 for no match.
func specificity(name, mediaType string) int {
	major, _, _ := strings.Cut(mediaType, "/")
	switch {
	case strings.EqualFold(name, mediaType):
		return 3
	case strings.EqualFold(name, major+"/*"):
		return 2
	case name == "*/*":
		return 1
	}
	return 0
}
