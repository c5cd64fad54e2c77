package onceclient

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// ErrInvalidKey is the error of a request with a [WithKey] that no server accepts, or with an empty key in its header,
// which some servers ignore. Nothing was sent.
var ErrInvalidKey = errors.New("onceclient: the key must have 1 to 255 printable ASCII characters")

// maxKeyLength is the length of the longest key that onceguard's middleware and Stripe's API accept, in characters.
const maxKeyLength = 255

// keyInContext is the key of a context's value.
type keyInContext struct{}

// WithKey returns a context for one operation: every request that is sent with it has this key, instead of a new one.
// Make the key with [NewKey], or use an id that stands for this one intent, such as an order's. Store it before the
// first try, and use it for every repetition, also after a restart. A key is not a secret, and should contain no personal
// data.
//
// A key has 1 to 255 printable ASCII characters, spaces included. For any other, RoundTrip returns [ErrInvalidKey]. It
// is sent as a string of RFC 9651 section 3.3.3, in double quotes. A request that already has the header keeps it. If
// that header is empty, RoundTrip returns ErrInvalidKey.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyInContext{}, key)
}

// key returns the value of the header that carries the key of req, from req itself if it has one.
func (t *transport) key(req *http.Request) (string, error) {
	if value, ok := t.keyIn(req.Header); ok {
		if unquote(strings.Trim(value, " \t")) == "" {
			return "", ErrInvalidKey
		}
		return value, nil
	}
	// http.Client copies to a redirected request only the header fields that the caller set, and not the key that was added.
	if req.Response != nil && req.Response.Request != nil {
		if value, ok := t.keyIn(req.Response.Request.Header); ok {
			return value, nil
		}
	}
	key, ok := req.Context().Value(keyInContext{}).(string)
	if !ok {
		return quote(NewKey()), nil
	}
	if !valid(key) {
		return "", ErrInvalidKey
	}
	return quote(key), nil
}

// keyIn returns the first value of the header that carries the key, and whether h has one. A caller may have set it by
// its name in HTTP/2, which is in lower case.
func (t *transport) keyIn(h http.Header) (string, bool) {
	for name, values := range h {
		if len(values) > 0 && strings.EqualFold(name, t.header) {
			return values[0], true
		}
	}
	return "", false
}

func valid(key string) bool {
	isOther := func(r rune) bool { return r < ' ' || r > '~' }
	return key != "" && len(key) <= maxKeyLength && !strings.ContainsFunc(key, isOther)
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quote(key string) string { return `"` + escaper.Replace(key) + `"` }

// unquote returns the key in a header's value, which a caller may have sent bare.
func unquote(value string) string {
	inner, begins := strings.CutPrefix(value, `"`)
	inner, ends := strings.CutSuffix(inner, `"`)
	if !begins || !ends {
		return value
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(inner)
}
