package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
)

// Func returns the key of a request. The error is [ErrMissing], [ErrInvalid] or [ErrNoUser], to be tested with
// errors.Is, or any other if the Func failed, for example because the body could not be read. The middleware refuses an
// empty key as malformed.
//
// A Func must be safe for concurrent use. If it reads the body, it must put it back as it was.
type Func func(*http.Request) (string, error)

var (
	// ErrMissing means that the request has no key. A caller may let such a request through unprotected, but no
	// request with any other error. See also [MissingError].
	ErrMissing = errors.New("keyfunc: the request has no key")

	// ErrInvalid means that the request has a malformed key. Its client relies on being protected: refuse the
	// request, and do not run it as if it had no key.
	ErrInvalid = errors.New("keyfunc: the key is malformed")

	// ErrNoUser means that the request has no authenticated user. With an empty user instead, all such requests
	// would share one scope, and one stranger would get the response of another.
	ErrNoUser = errors.New("keyfunc: no authenticated user")
)

// MissingError matches [ErrMissing] in errors.Is, and names the place where the key belongs. The middleware sends both
// fields to the client, so a [Func] of your own must not copy text from the request into them.
type MissingError struct {
	In   string // kind of place: "header", "form field", "query parameter", "JSON value"
	Name string // its name, such as "Idempotency-Key"
}

func (e MissingError) Error() string { return fmt.Sprintf("%v in the %s %s", ErrMissing, e.In, e.Name) }

// Unwrap returns [ErrMissing].
func (MissingError) Unwrap() error { return ErrMissing }
