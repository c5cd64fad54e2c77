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

func BenchmarkHeaderMegabyte(b *testing.B) {
	fn := keyfunc.Header("Idempotency-Key")
	r := withKey(`"a";p="` + strings.Repeat(`\\`, 1<<19) + `"`)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = fn(r)
	}
}

func BenchmarkForm(b *testing.B) {
	fn := keyfunc.Form("key")
	contentType, body := multi("xYz", part("item", "1"), filePart("photo", strings.Repeat("x", 1<<16)), part("key", "abc"))
	for name, c := range map[string]struct{ contentType, body string }{
		"urlencoded": {urlencoded, "item=1&amount=1250&key=8e03978e-40d5-43e8-bc93-6894a57f9324"},
		"multipart":  {contentType, body},
	} {
		b.Run(name, func(b *testing.B) {
			r := withBody(c.contentType, c.body)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := fn(r); err != nil {
					b.Fatal(err)
				}
				// The next iteration needs an unread body.
				r.Body = withBody("", c.body).Body
			}
		})
	}
}

// The worst bodies of 1 MiB that the default of middleware.WithMaxBody lets through.
func BenchmarkJSONMegabyte(b *testing.B) {
	for name, body := range megabytes() {
		fn := keyfunc.JSON("/id")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = fn(withBody(jsonType, body))
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
