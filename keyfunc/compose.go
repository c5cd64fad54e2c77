package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/onceguard/onceguard/internal/canonical"
)

// First asks fns in order and answers as the first one does that is not ErrMissing, be it a key or
// an error: a malformed header is not made good by a form field.
//
// ErrMissing: all of them are missing. The error is that of fns[0]: the first place is the one that a
// [MissingError] tells the client to use. First panics when there are no fns, or when one is nil. The
// Func is safe for concurrent use.
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

// Compose joins the keys of all parts. Each is written with its length before it, so that two
// different lists never give the same key: "a" and "b:c" are not "a:b" and "c".
//
// The parts are asked in order and the first error is returned as it is. Put the part that finds the
// client's key first if the others should not be asked for a request without one. The order is part of the
// key as well: to change it in a running service is to forget every key that is in use.
//
// Compose panics when there are no parts, or when one is nil. The Func is safe for concurrent use.
func Compose(parts ...Func) Func {
	parts = checked("keyfunc.Compose", parts)
	return func(r *http.Request) (string, error) {
		var buf [256]byte
		joined := buf[:0]
		for _, part := range parts {
			key, err := part(r)
			if err != nil {
				return "", err
			}
			joined = canonical.AppendPart(joined, key)
		}
		return string(joined), nil
	}
}

// checked copies fns, so that a slice the caller changes later does not change the Func.
func checked(caller string, fns []Func) []Func {
	if len(fns) == 0 {
		panic(caller + ": no functions")
	}
	for i, fn := range fns {
		if fn == nil {
			panic(fmt.Sprintf("%s: argument %d is nil", caller, i+1))
		}
	}
	return slices.Clone(fns)
}
