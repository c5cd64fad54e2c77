package keyfunc

import (
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/internal/option"
)

// Opaque reads the key from a header field as it stands, for an API whose keys are opaque strings: quotes, commas and
// semicolons are part of the key, so "abc" in quotes and abc are two keys. [Header] takes them for one, as the
// Idempotency-Key draft does. Spaces and tabs around the value are not part of it (RFC 9110 section 5.5).
//
// [MissingError]: the request has no such field. ErrInvalid: the field is empty, occurs more than once, has more than 255
// characters, or has characters outside 0x20-0x7E. Opaque panics unless name is a valid field name. The Func is safe for
// concurrent use.
func Opaque(name string) Func {
	name = option.FieldName("keyfunc.Opaque", name)
	place := "header " + name
	missing := error(MissingError{In: "header", Name: name})
	return func(r *http.Request) (string, error) {
		lines := r.Header[name]
		if len(lines) == 1 {
			return single(place, missing, []string{strings.Trim(lines[0], " \t")})
		}
		return single(place, missing, lines)
	}
}
