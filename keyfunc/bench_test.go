package keyfunc_test

import (
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

func BenchmarkStandard(b *testing.B) {
	fn := keyfunc.Standard(keyfunc.User(currentUser))
	for name, lines := range map[string][]string{
		"missing":    nil,
		"invalid":    {`"abc`},
		"bare":       {"8e03978e-40d5-43e8-bc93-6894a57f9324"},
		"quoted":     {`"8e03978e-40d5-43e8-bc93-6894a57f9324"`},
		"escaped":    {`"8e03978e\"40d5\"43e8\"bc93\"6894a57f9324"`},
		"parameters": {`"8e03978e-40d5-43e8-bc93-6894a57f9324";p=1;q=tok`},
	} {
		b.Run(name, func(b *testing.B) {
			r := as(withKey(lines...), "42")
			b.ReportAllocs()
			for b.Loop() {
				_, _ = fn(r)
			}
		})
	}
}

// megabytes returns JSON bodies of about 1 MiB with as many values, or names, as possible.
func megabytes() map[string]string {
	repeat := func(text string) string { return strings.Repeat(text, 1<<20/len(text)) }
	return map[string]string{
		"numbers in an array": `{"x":[` + repeat("1,") + `1],"id":"a"}`,
		"numbers":             `[` + repeat("1,") + `1]`,
		"empty objects":       `[` + repeat("{},") + `1]`,
		"members":             `{` + repeat(`"":1,`) + `"id":"a"}`,
		"escaped members":     `{` + repeat(`"\u0061":1,`) + `"id":"a"}`,
		"one string":          `{"x":"` + repeat("a") + `","id":"a"}`,
		"an event":            `{"x":[` + repeat(`{"object":"charge","amount":1250,"paid":true},`) + `1],"id":"a"}`,
	}
}
