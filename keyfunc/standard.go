package keyfunc

import (
	"errors"
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
)

// Standard returns the key of the Idempotency-Key header, for one operation and one user:
//
//	Compose(Route(), user, Header("Idempotency-Key"))
//
// It reads the header first, so that a missing or malformed key is refused before user is called. The header is that of
// draft-ietf-httpapi-idempotency-key-header-07, whose section 2.2 leaves the scope of a key to the server.
//
// The user is a parameter and not an option: nobody can forget it and let one user replay the response of another. Pass
// [Anonymous] if there are no users.
//
// [MissingError]: the request has no Idempotency-Key header. ErrInvalid: the header is malformed, see [Header].
// ErrNoUser: user returned ErrNoUser, ErrMissing or an empty string. Any other error of user is returned unchanged.
// Standard panics when user is nil. The Func is safe for concurrent use if user is.
func Standard(user Func) Func {
	if user == nil {
		panic("keyfunc.Standard: user is nil")
	}
	header := Header("Idempotency-Key")
	return func(r *http.Request) (string, error) {
		key, err := header(r)
		if err != nil {
			return "", err
		}
		id, err := user(r)
		if errors.Is(err, ErrMissing) || err == nil && id == "" {
			return "", ErrNoUser
		}
		if err != nil {
			return "", err
		}
		var route, joined [256]byte
		b := canonical.AppendPart(joined[:0], canonical.AppendRoute(route[:0], r))
		b = canonical.AppendPart(b, id)
		b = canonical.AppendPart(b, key)
		return string(b), nil
	}
}
