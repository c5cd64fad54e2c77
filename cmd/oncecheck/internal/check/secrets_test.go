package check_test

import (
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// What the user gave with -H is a variable wherever a server repeats it, also as JSON, in a URL, and decoded.
func TestHide(t *testing.T) {
	t.Parallel()
	first := []ask.Field{
		{Name: "Authorization", Value: "Bearer s3cr3t.tok/en+1=="}, {Name: "Cookie", Value: "sid=abc123; theme=dark"},
		{Name: "X-Tenant", Value: "acme-corporation"},
		{Name: "Content-Type", Value: "application/json"}, {Name: "X-Version", Value: "201"},
		{Name: "X-Api-Key", Value: `a"b\c`},
	}
	second := []ask.Field{{Name: "Authorization", Value: "Basic Ym9iOmh1bnRlcjI="}}
	for text, want := range map[string]string{
		"201 Created {\"auth\":\"Bearer s3cr3t.tok/en+1==\"}":            "201 Created {\"auth\":\"$AUTHORIZATION\"}",
		"token s3cr3t.tok/en+1==, as a query: s3cr3t.tok%2Fen%2B1%3D%3D": "token $AUTHORIZATION, as a query: $AUTHORIZATION",
		"sid abc123 and xabc123":                                         "sid $COOKIE and x$COOKIE",
		"acme-corporation":                                               "$X_TENANT",
		"application/json":                                               "application/json",
		`{"key":"a\"b\\c"} a"b\c`:                                        `{"key":"$X_API_KEY"} $X_API_KEY`,
		"bob:hunter2 or hunter2":                                         "$AUTHORIZATION_2 or $AUTHORIZATION_2",
		"Bearer and Basic":                                               "Bearer and Basic",
		"":                                                               "",
	} {
		if got := check.Hide(first, second, text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// No secret is left as a word of its own, and what stands around it stays.
func FuzzHide(f *testing.F) {
	f.Add("Bearer tok", "x", "y")
	f.Add("a b", "\xff", "")
	f.Add("\x99\x99\x99", "F", "0") // no word in UTF-8
	f.Fuzz(func(t *testing.T, value, before, after string) {
		fields := []ask.Field{{Name: "Authorization", Value: value}}
		got := check.Hide(fields, nil, before+" "+value+" "+after)
		if len(value) > 3 && value == strings.TrimSpace(value) && !strings.Contains(value, "{{") && len(strings.Fields(value)) == 1 &&
			!strings.Contains(before+after, value) && !strings.Contains("$AUTHORIZATION", value) && strings.Contains(got,
			" "+value+" ") {
			t.Errorf("%q in %q", value, got)
		}
	})
}
