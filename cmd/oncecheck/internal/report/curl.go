package report

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// maxShown limits the requests of one failure.
const maxShown = 8

// Curl returns shell lines that send the exchanges again, under new keys, each with what was answered as a comment.
// The values of the user's headers are shell variables: a report is read by more people than may have them.
func Curl(exchanges []ask.Exchange) []string {
	keys := map[string]string{} // the name of each key's variable
	var lines []string
	for _, e := range exchanges {
		if _, ok := keys[e.Request.Key]; !ok && e.Request.Key != "" {
			name := "KEY"
			if len(keys) > 0 {
				name += strconv.Itoa(len(keys) + 1)
			}
			keys[e.Request.Key] = name
			lines = append(lines, name+"=$("+newUUID+")")
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
		lines = appendCommands(lines, r.Before)
		line := command(together, keys)
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
		lines = appendCommands(append(lines, line+"  # "+comment(together)), together[len(together)-1].Request.After)
	}
	if running {
		lines = append(lines, "wait")
	}
	return lines
}

// newUUID is the command of a POSIX shell that prints a UUID of version 4. Small images have no uuidgen.
const newUUID = "printf '%s%s-%s-4%.3s-a%.3s-%s%s%s' $(od -An -N16 -tx2 /dev/urandom)"

func appendCommands(lines []string, commands string) []string {
	if commands == "" {
		return lines
	}
	return append(lines, strings.Split(commands, "\n")...)
}

// batch returns the exchanges that one command sends, and the others: those that are like the first, but for their URL,
// and were sent at the same instant.
func batch(exchanges []ask.Exchange) (together, others []ask.Exchange) {
	first := exchanges[0].Request
	for i, e := range exchanges {
		r := e.Request
		switch {
		case i > 0 && !(first.AtOnce && r.AtOnce):
			return together, append(others, exchanges[i:]...)
		case r.Key == first.Key && r.Second == first.Second && bytes.Equal(r.Body, first.Body):
			together = append(together, e)
		default:
			others = append(others, e)
		}
	}
	return together, others
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
			answer += " " + excerpt(e.Response.Body)
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

// excerpt returns the beginning of a body on one line.
func excerpt(body []byte) string {
	if !utf8.Valid(body) {
		return fmt.Sprintf("(%d bytes that are no text)", len(body))
	}
	return cut(check.Printable(strings.TrimSpace(string(body))), 121)
}

// command returns the curl command of requests that differ in their URL alone.
func command(exchanges []ask.Exchange, keys map[string]string) string {
	r := exchanges[0].Request
	words := []string{"curl", "-isS"}
	if len(exchanges) > 1 {
		words = append(words, "-Z", "--parallel-immediate", "--no-progress-meter")
	}
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
	var leaves time.Duration // of the most patient client that got no answer
	for _, e := range exchanges {
		leaves = max(leaves, e.Request.Leaves)
	}
	if leaves > 0 {
		words = append(words, "-m", strconv.FormatFloat(leaves.Seconds(), 'f', -1, 64))
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
	for _, u := range urls(exchanges) {
		words = append(words, quote(u, r.Key, keys))
	}
	return strings.Join(words, " ")
}

// notGlob encodes what curl takes for a pattern.
var notGlob = strings.NewReplacer("[", "%5B", "]", "%5D", "{", "%7B", "}", "%7D")

// urls returns the URLs as arguments of curl. One that is asked several times has a pattern behind it, which is not sent.
func urls(exchanges []ask.Exchange) (list []string) {
	times := map[string]int{}
	for _, e := range exchanges {
		u := e.Request.URL
		name := u.Scheme + "://" + u.Host + notGlob.Replace(u.RequestURI())
		if times[name]++; times[name] == 1 {
			list = append(list, name)
		}
	}
	for i, name := range list {
		if times[name] > 1 {
			list[i] += fmt.Sprintf("#[1-%d]", times[name])
		}
	}
	return list
}

// header returns the argument of -H.
func header(f ask.Field, r ask.Request, keys map[string]string) string {
	switch {
	case f.Variable != "":
		return `"` + doubleQuoted.Replace(f.Name) + ": $" + f.Variable + `"`
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
