// Package keyfunc says which requests are the same request: a [Func] turns an *http.Request into
// the key under which its response is kept.
//
// [Standard] is the one to start with. It joins three things, because a key that the client chose
// means something only within the operation it was sent to and only for the user who sent it:
//
//	keyfunc.Standard(keyfunc.User(userID))
//	// is Compose(Route(), user, Header("Idempotency-Key")), but looks at the header first
//
// For an HTML form, which cannot send a header of its own, put the parts together by hand:
//
//	keyfunc.Compose(
//		keyfunc.First(keyfunc.Header("Idempotency-Key"), keyfunc.Form("idempotency_key")),
//		keyfunc.Route(),
//		keyfunc.User(userID),
//	)
//
// Every Func of this package may be used by any number of goroutines at the same time, each with a
// request of its own. A key is the caller's text: no error of this package repeats it, and whoever
// stores or logs it should hash it first.
package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
)

// Func returns the key of a request, or one of three errors that say what is wrong with it:
// [ErrMissing], [ErrInvalid] and [ErrNoUser], to be told apart with errors.Is. Any other error means
// that the question could not be answered, for instance because the body could not be read.
//
// A Func may read the body if it leaves it as it was. It must be safe for concurrent use.
type Func func(*http.Request) (string, error)

var (
	// ErrMissing means that the request carries no key. It is the only error after which a request
	// may be let through unprotected. [MissingError] is one that names what was looked for.
	ErrMissing = errors.New("keyfunc: the request carries no key")

	// ErrInvalid means that the request carries a key, and that it is malformed. The sender believes
	// itself protected, so running the request as if there were no key would be worse than refusing.
	ErrInvalid = errors.New("keyfunc: the key is malformed")

	// ErrNoUser means that nobody is authenticated. It is not an empty user: all the requests
	// without a user would share one scope, and one stranger would get another's response.
	ErrNoUser = errors.New("keyfunc: nobody is authenticated")
)

// MissingError is an [ErrMissing], as [errors.Is] sees it, that names where the key was looked for. The middleware tells
// it to the client: a [Func] of one's own must put nothing there that came with the request.
type MissingError struct {
	In   string // the kind of place: "header", "form field", "query parameter"
	Name string // its name: "Idempotency-Key"
}

func (e MissingError) Error() string { return fmt.Sprintf("%v in the %s %s", ErrMissing, e.In, e.Name) }

// Unwrap returns [ErrMissing].
func (MissingError) Unwrap() error { return ErrMissing }
