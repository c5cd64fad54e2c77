package middleware

// This file contains how old a key is ([WithKeyAge]).

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/keyfunc"
)

// maxKeyLead is how far in the future a key may have been made.
const maxKeyLead = time.Hour

// errKeyOfFuture is the Event's error for a key that was made more than maxKeyLead in the future.
var errKeyOfFuture = fmt.Errorf("%w: it was made more than an hour in the future, by the clock of this process (WithKeyAge)",
	keyfunc.ErrInvalid)

// applyKeyAge checks WithKeyAge against the retention. A key that was made maxKeyLead in the future may run for keyAge and
// maxKeyLead from now, so its response is kept for that long.
func (o *options) applyKeyAge() {
	if o.keyAge == 0 {
		return
	}
	option.Check(o.keyAge <= o.policy.Retention, "middleware.WithKeyAge: %v is more than the %v of WithRetention: "+
		"a key could run again after its response has expired", o.keyAge, o.policy.Retention)
	o.policy.Retention = max(o.policy.Retention, o.keyAge+maxKeyLead)
}

// isTooOld reports whether the request's key is too old to run. The error is one of part, or errKeyOfFuture.
func (o *options) isTooOld(r *http.Request) (bool, error) {
	if o.keyAge == 0 {
		return false, nil
	}
	part, err := o.keyPart(r)
	switch {
	case errors.Is(err, keyfunc.ErrMissing):
		return false, nil // the key has another source, such as the second one of keyfunc.First
	case err != nil:
		return false, err
	}
	made, ok := madeAt(part)
	if !ok {
		return false, nil
	}
	age := time.Since(made)
	if age < -maxKeyLead {
		return false, errKeyOfFuture
	}
	return age > o.keyAge, nil
}

// madeAt returns when a key was made, if it is a UUID of version 7: its first 48 bits are the Unix time in milliseconds
// (RFC 9562 section 5.7).
func madeAt(key string) (made time.Time, ok bool) {
	id, err := uuid.Parse(key)
	isText := len(key) == len("00000000-0000-7000-8000-000000000000") // Parse also takes braces, a URN, and bare digits
	if err != nil || !isText || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		return time.Time{}, false
	}
	return time.Unix(id.Time().UnixTime()), true
}
