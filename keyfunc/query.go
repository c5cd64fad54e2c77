package keyfunc

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/onceguard/onceguard/internal/option"
)

// Query reads the key from a parameter of the URL, for clients that can set neither a header nor a form field. Logs and
// browser histories keep URLs, so prefer [Header].
//
// [MissingError]: the URL has no such parameter. ErrInvalid: the query string is malformed, or the parameter is empty,
// occurs twice, is longer than 255 characters, or has characters outside 0x20-0x7E. Query panics when name is empty.
// The Func is safe for concurrent use.
func Query(name string) Func {
	option.Check(name != "", "keyfunc.Query: name is empty")
	place := fmt.Sprintf("query parameter %q", name)
	missing := error(MissingError{In: "query parameter", Name: name})
	return func(r *http.Request) (string, error) {
		if r.URL.RawQuery == "" {
			return "", missing
		}
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", invalid(place, "cannot be read: the query string is malformed")
		}
		return single(place, missing, query[name])
	}
}
