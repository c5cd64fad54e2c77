package ask_test

import (
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

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
