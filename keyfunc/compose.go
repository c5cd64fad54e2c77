package keyfunc

import (
	"errors"
	"net/http"
	"slices"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/internal/option"
)

// First calls fns in order and returns the first result, key or error, that is not ErrMissing. So a malformed form is an
// error even if a header has a key. Put [Form] before [Header]: browsers may add a header of their own to each POST.
//
// If all return ErrMissing, so does First, with the error of fns[0]: a [MissingError] tells the client to use that
// place. First panics when there are no fns, or when one is nil. The Func is safe for concurrent use if fns are.
func First(fns ...Func) Func {
	fns = checked("keyfunc.First", fns)
	return func(r *http.Request) (string, error) {
		var missing error
		for _, fn := range fns {
			key, err := fn(r)
			if !errors.Is(err, ErrMissing) {
				return key, err
			}
			if missing == nil {
				missing = err
			}
		}
		return "", missing
	}
}

// Compose joins the keys of all parts. The length of each precedes it, so different lists give different keys: "a" and
// "b:c" are not "a:b" and "c".
//
// Compose calls the parts in order and returns the first error unchanged. Put the client's key first, so that the other
// parts are not called without one. The order is part of the key: a service that changes it forgets every key in use.
//
// Compose panics when there are no parts, or when one is nil. The Func is safe for concurrent use if parts are.
func Compose(parts ...Func) Func {
	parts = checked("keyfunc.Compose", parts)
	return func(r *http.Request) (string, error) {
		keys := make([]string, len(parts))
		for i, part := range parts {
			key, err := part(r)
			if err != nil {
				return "", err
			}
			keys[i] = key
		}
		return ComposedKey(keys...), nil
	}
}

// ComposedKey returns the key that [Compose] makes of parts that return these keys. It is for an operator, as [StandardKey]:
//
//	ComposedKey("acme", "ann")                           // of Compose(tenant, user), the user of Standard
//	ComposedKey(StandardKey(...), "shop.example.com")    // of Compose(Standard(user), Host())
//
// The host is in lower case, as [Host] returns it.
func ComposedKey(parts ...string) string {
	var buf [256]byte
	joined := buf[:0]
	for _, part := range parts {
		joined = canonical.AppendPart(joined, part)
	}
	return string(joined)
}

// checked panics unless fns can be called. It returns a copy, so that the caller may change the slice later.
func checked(caller string, fns []Func) []Func {
	option.Check(len(fns) != 0, "%s: no functions", caller)
	for i, fn := range fns {
		option.Check(fn != nil, "%s: argument %d is nil", caller, i+1)
	}
	return slices.Clone(fns)
}
