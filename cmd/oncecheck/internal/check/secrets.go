package check

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// secrets are the values of the user's headers, and the words in them. A report has a variable in their place, wherever the
// server repeats them. The longest come first.
type secrets []secret

type secret struct{ text, variable string }

// harmless are the headers that everybody may see.
var harmless = []string{"accept", "accept-charset", "accept-encoding", "accept-language", "content-type", "host", "origin", "referer", "user-agent"}

// credential matches the names of headers whose values are secret although they are short.
var credential = regexp.MustCompile(`(?i)auth|cookie|token|secret|api-?key|password|session|signature`)

var placeholders = strings.NewReplacer("{{n}}", "", "{{key}}", "", "{{uuid}}", "")

// variable returns the name of the shell variable that stands for the value of a header, of the first or the second user. There
// is none if everybody may see the value, or it has placeholders and no other word.
func variable(f ask.Field, second bool) string {
	own := placeholders.Replace(f.Value)
	if slices.Contains(harmless, strings.ToLower(f.Name)) || own == "" || own != f.Value && strings.IndexFunc(own, isWord) < 0 {
		return ""
	}
	name := strings.Map(func(c rune) rune {
		if isWord(c) {
			return unicode.ToUpper(c)
		}
		return '_'
	}, f.Name)
	if second {
		name += "_2"
	}
	return name
}

func newSecrets(first, second []ask.Field) (all secrets) {
	for i, fields := range [][]ask.Field{first, second} {
		for _, f := range fields {
			name := variable(f, i == 1)
			if name == "" {
				continue
			}
			shortest := 6 // a number of a version is no secret
			if credential.MatchString(f.Name) {
				shortest = 3
			}
			for _, word := range words(f) {
				if len(word) >= shortest && !strings.Contains(word, "{{") {
					all = append(all, secret{word, "$" + name})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b secret) int { return len(b.text) - len(a.text) })
	return all
}

// words returns the value of a header, what is secret in it, and both as JSON and URLs have them.
func words(f ask.Field) (all []string) {
	parts := []string{f.Value}
	fields := strings.FieldsFunc(f.Value, func(c rune) bool { return c == ' ' || c == ';' || c == ',' })
	isCookie := strings.Contains(strings.ToLower(f.Name), "cookie")
	for i, part := range fields {
		if i == 0 && len(fields) > 1 && !isCookie {
			continue // the scheme, such as Bearer
		}
		if _, value, ok := strings.Cut(part, "="); ok && isCookie {
			part = value
		}
		parts = append(parts, part)
		if pair, err := base64.StdEncoding.DecodeString(part); err == nil && utf8.Valid(pair) {
			_, password, _ := strings.Cut(string(pair), ":")
			parts = append(parts, string(pair), password)
		}
	}
	for _, part := range parts {
		asJSON, _ := json.Marshal(part) // never fails
		all = append(all, part, strings.Trim(string(asJSON), `"`), url.QueryEscape(part))
	}
	return all
}

// hide returns the text with a variable in place of each secret that stands there as a word.
func (all secrets) hide(text string) string {
	for _, s := range all {
		text = replaceWord(text, s.text, s.variable)
	}
	return text
}

// shown returns the beginning of what a server or a command has said. Secrets are hidden first: a part of one is no longer found.
func (s *Session) shown(text string, most int) string {
	return fmt.Sprintf("%.*q", most, s.secrets.hide(text))
}

// replaceWord replaces old where it is no part of a longer word.
func replaceWord(text, old, with string) string {
	var b strings.Builder
	for rest := text; ; {
		before, after, ok := strings.Cut(rest, old)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		last, _ := utf8.DecodeLastRuneInString(b.String())
		next, _ := utf8.DecodeRuneInString(after)
		if isWord(last) || isWord(next) {
			b.WriteString(old)
		} else {
			b.WriteString(with)
		}
		rest = after
	}
}

func isWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// hideIn hides the secrets in what a result says and shows.
func (all secrets) hideIn(r *Result) {
	r.Sentence, r.Want, r.Got = all.hide(r.Sentence), all.hide(r.Want), all.hide(r.Got)
	for i, e := range r.Shown {
		if e.Response != nil {
			hidden := *e.Response
			hidden.Body = []byte(all.hide(string(hidden.Body)))
			r.Shown[i].Response = &hidden
		}
	}
}
