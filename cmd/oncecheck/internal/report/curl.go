package report

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// maxShown limits the lines of one failure.
const maxShown = 8

// Curl returns shell lines that send the exchanges again, under new keys, each with what was answered as a comment.
// Credentials are shell variables: a report is read by more people than may have them.
func Curl(exchanges []ask.Exchange) []string {
	keys := map[string]string{} // the name of each key's variable
	var lines, names []string
	for _, e := range exchanges {
		if _, ok := keys[e.Request.Key]; !ok && e.Request.Key != "" {
			name := "KEY"
			if len(keys) > 0 {
				name += strconv.Itoa(len(keys) + 1)
			}
			keys[e.Request.Key] = name
			names = append(names, name)
		}
	}
	for _, name := range names {
		lines = append(lines, name+"=$(uuidgen)")
	}
	for i := 0; i < len(exchanges); {
		if len(lines) > maxShown+len(names) {
			return append(lines, fmt.Sprintf("# and %d more", len(exchanges)-i))
		}
		n := group(exchanges[i:])
		lines = append(lines, groupLine(exchanges[i:i+n], keys))
		i += n
	}
	return lines
}

// group returns how many of the first exchanges were sent at one instant.
func group(exchanges []ask.Exchange) int {
	n := 1
	for exchanges[0].Request.AtOnce && n < len(exchanges) && exchanges[n].Request.AtOnce &&
		exchanges[n].Request.Key == exchanges[0].Request.Key && exchanges[n].Request.URL.Host == exchanges[0].Request.URL.Host {
		n++
	}
	return n
}

func groupLine(exchanges []ask.Exchange, keys map[string]string) string {
	line := command(exchanges[0].Request, keys)
	if len(exchanges) > 1 {
		line = fmt.Sprintf("for i in $(seq %d); do %s & done; wait", len(exchanges), line)
	} else if exchanges[0].Request.AtOnce {
		line += " &"
	}
	return line + "  # " + comment(exchanges)
}

// comment says what is special about the requests, and how they were answered.
func comment(exchanges []ask.Exchange) string {
	var parts []string
	if note := exchanges[0].Request.Note; note != "" {
		parts = append(parts, note)
	}
	seen := map[string]int{}
	var answers []string
	for _, e := range exchanges {
		answer := e.String()
		if e.Response != nil && len(e.Response.Body) > 0 {
			answer += " " + printable(e.Response.Body, 120)
		}
		if seen[answer]++; seen[answer] == 1 {
			answers = append(answers, answer)
		}
	}
	for i, answer := range answers {
		if seen[answer] > 1 {
			answers[i] = fmt.Sprintf("%d times %s", seen[answer], answer)
		}
	}
	if len(answers) > 5 {
		answers = append(answers[:5], fmt.Sprintf("and %d other answers", len(answers)-5))
	}
	return strings.Join(append(parts, strings.Join(answers, " | ")), ": ")
}

// printable returns the beginning of a body on one line, without what a terminal would act on.
func printable(body []byte, limit int) string {
	if !utf8.Valid(body) {
		return fmt.Sprintf("(%d bytes that are no text)", len(body))
	}
	text := strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return ' '
		}
		if !unicode.IsPrint(c) {
			return '.'
		}
		return c
	}, strings.TrimSpace(string(body)))
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return text
}

// credential matches the names of headers whose values are not for everybody.
var credential = regexp.MustCompile(`(?i)auth|cookie|token|secret|api-?key|password`)

// command returns the curl command of a request.
func command(r ask.Request, keys map[string]string) string {
	words := []string{"curl", "-isS"}
	switch {
	case r.Method == http.MethodHead:
		words = append(words, "-I")
	case r.Method != http.MethodGet:
		words = append(words, "-X", r.Method)
	}
	if r.HTTP2 && r.URL.Scheme == "http" {
		words = append(words, "--http2-prior-knowledge")
	} else if r.HTTP2 {
		words = append(words, "--http2")
	}
	for _, f := range r.Header {
		words = append(words, "-H", header(f, r, keys))
	}
	if r.Chunked {
		words = append(words, "-H", "'Transfer-Encoding: chunked'")
	}
	if r.Expect {
		words = append(words, "-H", "'Expect: 100-continue'")
	}
	if len(r.Body) > 0 {
		words = append(words, "--data-binary", quote(string(r.Body), r.Key, keys))
	}
	return strings.Join(append(words, quote(r.URL.Redacted(), r.Key, keys)), " ")
}

// header returns the argument of -H.
func header(f ask.Field, r ask.Request, keys map[string]string) string {
	switch {
	case credential.MatchString(f.Name) && (r.Key == "" || !strings.Contains(f.Value, r.Key)):
		variable := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if r.Second {
			variable += "_2"
		}
		return `"` + f.Name + ": $" + variable + `"`
	case f.Value == "":
		return "'" + f.Name + ";'" // curl's way to write a header without a value
	}
	return quote(f.Name+": "+f.Value, r.Key, keys)
}

var doubleQuoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")

// quote returns s as one word of the shell, with the key replaced by its variable.
func quote(s, key string, keys map[string]string) string {
	if key == "" || !strings.Contains(s, key) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return `"` + strings.ReplaceAll(doubleQuoted.Replace(s), key, "${"+keys[key]+"}") + `"`
}
