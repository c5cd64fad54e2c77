package keyfunc

import (
	"errors"
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
)

// Standard is the Idempotency-Key header of draft-ietf-httpapi-idempotency-key-header-07, unique within
// one operation and one user (section 2.2 leaves it to the server to say within what). The user is a
// parameter and not an option, so that nobody forgets it and lets one user replay another's response;
// [Anonymous] is the way to say that there is none.
//
// The key is that of Compose(Route(), user, Header("Idempotency-Key")), but the header is looked at first:
// a request without a key never asks who the user is, and a malformed key is refused before the user is looked at.
//
// [MissingError]: no Idempotency-Key header. ErrInvalid: a malformed one, see [Header]. ErrNoUser: user
// said so, or answered ErrMissing or an empty string. Any other error of user is returned as it is.
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
