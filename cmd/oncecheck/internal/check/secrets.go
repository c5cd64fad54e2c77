package check

import (
	"cmp"
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

// harmless matches the headers that everybody may see.
var harmless = regexp.MustCompile(`(?i)^(accept(-.*)?|content-type|host|origin|referer|user-agent)$`)

var placeholders = strings.NewReplacer("{{n}}", "", "{{key}}", "", "{{uuid}}", "")

// variable returns the name of the shell variable that stands for the value of a header, of the first or the second user. There
// is none if everybody may see the value, or it has placeholders and no other word.
func variable(f ask.Field, second bool) string {
	own := placeholders.Replace(f.Value)
	if harmless.MatchString(f.Name) || own == "" || own != f.Value && strings.IndexFunc(own, isWord) < 0 {
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

func isWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// newSecrets returns what replaces the values of the user's headers, and the words in them, wherever a server repeats them, by
// the variables. Of those that begin at one place the longest is replaced. Three characters are no secret, but a status.
func newSecrets(first, second []ask.Field) *strings.Replacer {
	var all [][]string
	for i, fields := range [][]ask.Field{first, second} {
		for _, f := range fields {
			name := variable(f, i == 1)
			for _, word := range words(f.Value) {
				if name != "" && len(word) > 3 && !strings.Contains(word, "{{") {
					all = append(all, []string{word, "$" + name})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b []string) int { return cmp.Compare(len(b[0]), len(a[0])) })
	return strings.NewReplacer(slices.Concat(all...)...)
}

// words returns the value of a header, what is secret in it, and both as JSON and URLs have them.
func words(header string) (all []string) {
	parts := []string{header}
	fields := strings.FieldsFunc(header, func(c rune) bool { return c == ' ' || c == ';' || c == ',' })
	for i, part := range fields {
		if _, value, _ := strings.Cut(part, "="); strings.Trim(value, "=") != "" {
			part = value // of a cookie
		} else if i == 0 && len(fields) > 1 {
			continue // the scheme, such as Bearer
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

// shown returns the beginning of what a server or a command has said. Secrets are hidden first: a part of one is no longer found.
func (s *Session) shown(text string, most int) string {
	return fmt.Sprintf("%.*q", most, s.secrets.Replace(text))
}

// hideIn hides the secrets in what a result says and shows.
func (s *Session) hideIn(r *Result) {
	hide := s.secrets.Replace
	r.Sentence, r.Want, r.Got = hide(r.Sentence), hide(r.Want), hide(r.Got)
	r.Shown = slices.Clone(r.Shown) // other checks look at the same exchanges
	for i, e := range r.Shown {
		if e.Response != nil {
			hidden := *e.Response
			hidden.Body = []byte(hide(string(hidden.Body)))
			r.Shown[i].Response = &hidden
		}
	}
}
