package report

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// maxShown limits the requests of one failure.
const maxShown = 8

// keyNames are the shell variables of the keys.
type keyNames map[string]string

// Curl returns shell lines that send the exchanges again, under new keys, each with what was answered as a comment.
// The values of the user's headers are shell variables: a report is read by more people than may have them.
func Curl(exchanges []ask.Exchange) (lines []string) {
	keys := keyNames{}
	for _, e := range exchanges {
		if key := e.Request.Op.Key; keys[key] == "" && key != "" {
			keys[key] = "KEY"
			if len(keys) > 1 {
				keys[key] += strconv.Itoa(len(keys))
			}
			lines = append(lines, keys[key]+"=$("+newUUID+")")
		}
	}
	running := false // a job of the shell
	for shown := 0; len(exchanges) > 0; shown++ {
		if shown == maxShown {
			lines = append(lines, fmt.Sprintf("# and %d more", len(exchanges)))
			break
		}
		var together []ask.Exchange
		together, exchanges = batch(exchanges)
		r := together[0].Request
		line := keys.command(together)
		switch {
		case r.Waited >= 50*time.Millisecond: // else this is the first try
			line = fmt.Sprintf("for wait in %.1f 0; do %s; sleep $wait; done", r.Waited.Seconds()+0.1, line)
		case r.AtOnce && len(exchanges) > 0 && exchanges[0].Request.AtOnce:
			line += " &"
			running = true
		case r.Runs:
			line += " & sleep 0.5"
			running = true
		case r.AtOnce && running:
			line += "; wait"
			running = false
		}
		line += "  # " + comment(together)
		last := together[len(together)-1].Request
		lines = slices.Concat(lines, commands(r.Before), []string{line}, commands(last.After))
	}
	if running {
		lines = append(lines, "wait")
	}
	return lines
}

func commands(lines string) []string {
	return strings.FieldsFunc(lines, func(c rune) bool { return c == '\n' })
}

// newUUID is the command of a POSIX shell that prints a UUID of version 4. Small images have no uuidgen.
const newUUID = "printf '%s%s-%s-4%.3s-a%.3s-%s%s%s' $(od -An -N16 -tx2 /dev/urandom)"

// batch returns the exchanges that one command sends, and the others: those that are like the first, but for their URL,
// and were sent at the same instant.
func batch(exchanges []ask.Exchange) (together, others []ask.Exchange) {
	first := exchanges[0].Request
	for i, e := range exchanges {
		r := e.Request
		switch {
		case i > 0 && !(first.AtOnce && r.AtOnce):
			return together, append(others, exchanges[i:]...)
		case r.Op.Key == first.Op.Key && r.Second == first.Second && bytes.Equal(r.Body, first.Body):
			together = append(together, e)
		default:
			others = append(others, e)
		}
	}
	return together, others
}

// count returns the texts, each once, and how often it occurs.
func count(texts []string) (different []string, times map[string]int) {
	times = map[string]int{}
	for _, text := range texts {
		if times[text]++; times[text] == 1 {
			different = append(different, text)
		}
	}
	return different, times
}

// comment says what is special about the requests, and how they were answered.
func comment(exchanges []ask.Exchange) string {
	var answers []string
	for _, e := range exchanges {
		answer := e.String()
		if e.Response != nil && len(e.Response.Body) > 0 {
			answer += " " + excerpt(e.Response.Body)
		}
		answers = append(answers, answer)
	}
	answers, times := count(answers)
	for i, answer := range answers {
		if times[answer] > 1 {
			answers[i] = fmt.Sprintf("%d times %s", times[answer], answer)
		}
	}
	if len(answers) > 5 {
		answers = append(answers[:5], fmt.Sprintf("and %d other answers", len(answers)-5))
	}
	text := strings.Join(answers, " | ")
	if note := exchanges[0].Request.Note; note != "" {
		text = note + ": " + text
	}
	return text
}

// excerpt returns the beginning of a body on one line.
func excerpt(body []byte) string {
	if !utf8.Valid(body) {
		return fmt.Sprintf("(%d bytes that are no text)", len(body))
	}
	return cut(check.Printable(strings.TrimSpace(string(body))), 121)
}

// command returns the curl command of requests that differ in their URL alone.
func (keys keyNames) command(exchanges []ask.Exchange) string {
	r := exchanges[0].Request
	words := []string{"curl -isS"}
	add := func(isSo bool, more ...string) {
		if isSo {
			words = append(words, more...)
		}
	}
	add(len(exchanges) > 1, "-Z --parallel-immediate --no-progress-meter")
	add(r.Method == http.MethodHead, "-I")
	add(r.Method != http.MethodHead && r.Method != http.MethodGet, "-X", r.Method)
	add(r.HTTP2 && r.URL.Scheme == "http", "--http2-prior-knowledge")
	add(r.HTTP2 && r.URL.Scheme != "http", "--http2")
	// That of the most patient client that got no answer.
	var leaves time.Duration
	for _, e := range exchanges {
		leaves = max(leaves, e.Request.Leaves)
	}
	add(leaves > 0, "-m", strconv.FormatFloat(leaves.Seconds(), 'f', -1, 64))
	for _, f := range r.Header {
		words = append(words, "-H", keys.header(f, r.Op.Key))
	}
	add(r.Chunked, "-H 'Transfer-Encoding: chunked'")
	add(r.Expect, "-H 'Expect: 100-continue'")
	add(len(r.Body) > 0, "--data-binary", keys.quote(string(r.Body), r.Op.Key))
	for _, u := range urls(exchanges) {
		words = append(words, keys.quote(u, r.Op.Key))
	}
	return strings.Join(words, " ")
}

// notGlob encodes what curl takes for a pattern.
var notGlob = strings.NewReplacer("[", "%5B", "]", "%5D", "{", "%7B", "}", "%7D")

// urls returns the URLs as arguments of curl. One that is asked several times has a pattern behind it, which is not sent.
func urls(exchanges []ask.Exchange) []string {
	var all []string
	for _, e := range exchanges {
		u := e.Request.URL
		all = append(all, u.Scheme+"://"+u.Host+notGlob.Replace(u.RequestURI()))
	}
	list, times := count(all)
	for i, name := range list {
		if times[name] > 1 {
			list[i] += fmt.Sprintf("#[1-%d]", times[name])
		}
	}
	return list
}

// header returns the argument of -H.
func (keys keyNames) header(f ask.Field, key string) string {
	switch {
	case f.Variable != "":
		return `"` + doubleQuoted.Replace(f.Name) + ": $" + f.Variable + `"`
	case f.Value == "":
		// Curl's way to write a header without a value.
		return "'" + f.Name + ";'"
	}
	return keys.quote(f.Name+": "+f.Value, key)
}

var doubleQuoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")

// quote returns s as one word of the shell, with the key replaced by its variable.
func (keys keyNames) quote(s, key string) string {
	if key == "" || !strings.Contains(s, key) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return `"` + strings.ReplaceAll(doubleQuoted.Replace(s), key, "${"+keys[key]+"}") + `"`
}
