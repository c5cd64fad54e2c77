package keyfunc

import (
	"fmt"
	"net/http"
	"net/url"
)

// Query takes the key from a parameter of the URL, for clients that can set neither a header nor a
// form field. URLs end up in logs and histories: prefer [Header] where there is a choice.
//
// [MissingError]: no such parameter. ErrInvalid: the query string cannot be parsed, or the parameter is
// empty, stands twice, is longer than 255 characters or has characters outside of 0x20-7E. Query
// panics when name is empty. The Func is safe for concurrent use.
func Query(name string) Func {
	if name == "" {
		panic("keyfunc.Query: name is empty")
	}
	place := fmt.Sprintf("query parameter %q", name)
	missing := error(MissingError{In: "query parameter", Name: name})
	return func(r *http.Request) (string, error) {
		if r.URL.RawQuery == "" {
			return "", missing
		}
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", invalid(place, "cannot be looked for: the query string does not parse")
		}
		return only(place, missing, query[name])
	}
}
