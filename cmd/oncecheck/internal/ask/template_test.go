package ask_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	op := ask.Operation{N: 7, Key: "k-1", UUID: "u-1"}
	for _, c := range []struct{ template, want string }{
		{`{"amount":{{n}}}`, `{"amount":7}`},
		{"{{key}}/{{uuid}}/{{n}}{{n}}", "k-1/u-1/77"},
		{`{"a":{"b":{}}}`, `{"a":{"b":{}}}`},
		{"", ""},
	} {
		if got := op.Expand(c.template); got != c.want {
			t.Errorf("%q: got %q, want %q", c.template, got, c.want)
		}
	}
}

func TestCheckTemplate(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "{{n}}", `{"a":{{n}},"b":{"c":{"d":1}}}`, `{"a":{{}}`, "{{", "}}", `{{"a":1}}`} {
		if err := ask.CheckTemplate(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"{{N}}", "{{amount}}", "{{ n }}", `{"a":{{n}},"b":{{m}}}`} {
		if err := ask.CheckTemplate(bad); err == nil || !strings.Contains(err.Error(), "{{uuid}}") {
			t.Errorf("%q: %v, want an error that names the placeholders", bad, err)
		}
	}
}

func TestUUID(t *testing.T) {
	t.Parallel()
	if one, other := ask.UUID(), ask.UUID(); one == other ||
		!regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(one) {
		t.Errorf("%s, %s", one, other)
	}
}

// A template that passes has no placeholder left once it is expanded.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{{n}}", `{"a":{{n}}}`, "{{{n}}}", "{{x}}", "{{n", "{{ key}}", "{{u{{uuid}}id}}"} {
		f.Add(seed)
	}
	// Its values are no part of a placeholder.
	op := ask.Operation{N: 1, Key: "-", UUID: "-"}
	f.Fuzz(func(t *testing.T, template string) {
		if ask.CheckTemplate(template) != nil {
			return
		}
		for _, name := range []string{"{{n}}", "{{key}}", "{{uuid}}"} {
			if strings.Contains(op.Expand(template), name) {
				t.Errorf("%q expands to %q", template, op.Expand(template))
			}
		}
	})
}
