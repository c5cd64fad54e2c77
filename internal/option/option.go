// Package option has what the options of the packages share: panics for wrong ones, in the words of their package.
package option

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// Check panics with the text of format and args unless ok is true.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}

// Apply applies opts to o, in this order. It panics in the name of caller if one is nil.
func Apply[O any, Option ~func(*O)](caller string, o *O, opts []Option) {
	for i, opt := range opts {
		Check(opt != nil, "%s: option %d is nil", caller, i+1)
		opt(o)
	}
}

// Both returns an observer that calls first, unless that is nil, and then second.
func Both[Event any](first, second func(context.Context, Event)) func(context.Context, Event) {
	if first == nil {
		return second
	}
	return func(ctx context.Context, e Event) {
		first(ctx, e)
		second(ctx, e)
	}
}

// tokenChars are those of a token (RFC 9110 section 5.6.2), which a field name is.
const tokenChars = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// FieldName returns the name of a header field in its canonical form. It panics in the name of caller if name is not one.
func FieldName(caller, name string) string {
	Check(name != "" && strings.TrimLeft(name, tokenChars) == "", "%s: %q is not the name of a header field", caller, name)
	return http.CanonicalHeaderKey(name)
}
