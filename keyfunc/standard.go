package keyfunc

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/internal/option"
)

// Standard returns the key of the Idempotency-Key header, for one operation and one user:
//
//	Compose(Route(), user, Header("Idempotency-Key"))
//
// It reads the header first, so that a missing or malformed key is refused before user is called. The header is that of
// draft-ietf-httpapi-idempotency-key-header-07, which has expired (see [Header]). Its section 2.2 leaves the scope of a
// key to the server.
//
// The user is a parameter and not an option, because without it one user could replay the response of another. Pass
// [Anonymous] if there are no users.
//
// [MissingError]: the request has no Idempotency-Key header. ErrInvalid: the header is malformed, see [Header].
// ErrNoUser: user returned ErrNoUser, ErrMissing or an empty string. Any other error of user is returned unchanged.
// Standard panics when user is nil. The Func is safe for concurrent use if user is.
func Standard(user Func) Func {
	option.Check(user != nil, "keyfunc.Standard: user is nil")
	return Scoped(Header("Idempotency-Key"), user)
}

// Scoped is [Standard] with another source of the client's key, such as [Opaque] or [Form]:
//
//	Compose(Route(), user, key)
//
// It calls key first. The errors of key are returned unchanged, and those of user as [Standard] returns them. Scoped
// panics when key or user is nil. The Func is safe for concurrent use if both are.
func Scoped(key, user Func) Func {
	option.Check(key != nil, "keyfunc.Scoped: key is nil")
	option.Check(user != nil, "keyfunc.Scoped: user is nil")
	return func(r *http.Request) (string, error) {
		sent, err := key(r)
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
		var route [256]byte
		return ComposedKey(string(canonical.AppendRoute(route[:0], r)), id, sent), nil
	}
}

// StandardKey returns the key that [Standard] derives from a request. It is for an operator who knows what a customer
// has sent and needs the storage key, which lock.Locker.StorageKey makes of this key.
//
// user is what the user Func returns, such as the name for [BasicUser]. [ComposedKey] joins the parts of a scope that is more
// than a user, such as tenant and user. method is in capitals. path is as the client has sent it, not decoded. A query is
// ignored, as by [Route]. key is the content of the header without quotes: 8e03978e, not "8e03978e". With [Opaque] it is as
// the client has sent it.
//
// StandardKey checks nothing. From arguments that no request can have, it makes a key that no request has.
func StandardKey(user, method, path, key string) string {
	path, _, _ = strings.Cut(path, "?")
	return ComposedKey(ComposedKey(cmp.Or(method, http.MethodGet), cmp.Or(path, "/")), user, key)
}
