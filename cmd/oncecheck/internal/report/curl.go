package report

import (
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

// keyNames are the shell variables of the keys.
type keyNames map[string]string

// newUUID is the command of a POSIX shell that prints a UUID of version 4. Small images have no uuidgen.
const newUUID = "printf '%s%s-%s-4%.3s-a%.3s-%s%s%s' $(od -An -N16 -tx2 /dev/urandom)"

// Curl returns shell lines that send the exchanges again, under new keys, each with what was answered as a comment.
// The values of the user's headers are shell variables: a report is read by more people than may have them.
func Curl(exchanges []ask.Exchange) (lines []string) {
	keys, more := keyNames{}, len(exchanges)-maxShown
	shown := exchanges[:min(len(exchanges), maxShown)]
	for _, e := range shown {
		if key := e.Request.Op.Key; keys[key] == "" && key != "" {
			keys[key] = "KEY" + strings.TrimPrefix(strconv.Itoa(len(keys)+1), "1")
			lines = append(lines, keys[key]+"=$("+newUUID+")")
		}
	}
	running := false // a job of the shell
	for i, e := range shown {
		r, line := e.Request, keys.command(e.Request)
		switch isLast := i+1 == len(shown) || !shown[i+1].Request.AtOnce; {
		case r.Waited >= 50*time.Millisecond: // else this is the first try
			line = fmt.Sprintf("for wait in %.1f 0; do %s; sleep $wait; done", r.Waited.Seconds()+0.1, line)
		case r.Runs:
			line, running = line+" & sleep 0.5", true
		case r.AtOnce && !isLast:
			line, running = line+" &", true
		case r.AtOnce && running:
			line, running = line+"; wait", false
		}
		lines = append(lines, commands(r.Before)...)
		lines = append(lines, line+"  # "+comment(e))
		lines = append(lines, commands(r.After)...)
	}
	if running {
		lines = append(lines, "wait")
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("# and %d more", more))
	}
	return lines
}

func commands(lines string) []string {
	return strings.FieldsFunc(lines, func(c rune) bool { return c == '\n' })
}

// comment says what is special about the request, and how it was answered.
func comment(e ask.Exchange) string {
	text := e.String()
	if e.Request.Note != "" {
		text = e.Request.Note + ": " + text
	}
	switch {
	case e.Response == nil || len(e.Response.Body) == 0:
		return text
	case !utf8.Valid(e.Response.Body):
		return fmt.Sprintf("%s (%d bytes that are no text)", text, len(e.Response.Body))
	}
	return text + " " + cut(check.Printable(strings.TrimSpace(string(e.Response.Body))), 121)
}

// command returns the curl command of a request. Curl reads no pattern in its URL.
func (keys keyNames) command(r ask.Request) string {
	words := []string{"curl -gisS"}
	add := func(isSo bool, more ...string) {
		if isSo {
			words = append(words, more...)
		}
	}
	add(r.Method != http.MethodGet, "-X", r.Method)
	add(r.Leaves > 0, "-m", strconv.FormatFloat(r.Leaves.Seconds(), 'f', -1, 64))
	for _, f := range r.Header {
		words = append(words, "-H", keys.header(f, r.Op.Key))
	}
	add(len(r.Body) > 0, "--data-binary", keys.quote(string(r.Body), r.Op.Key))
	return strings.Join(append(words, keys.quote(r.URL.Scheme+"://"+r.URL.Host+r.URL.RequestURI(), r.Op.Key)), " ")
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
