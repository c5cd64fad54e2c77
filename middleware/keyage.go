package middleware

// This file contains how old a key is ([WithKeyAge]).

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
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
	if o.keyAge > o.retention {
		panic(fmt.Sprintf("middleware.WithKeyAge: %v is more than the %v of WithRetention: a key could run again after "+
			"its response has expired", o.keyAge, o.retention))
	}
	o.retention = max(o.retention, o.keyAge+maxKeyLead)
}

// checkKeyAge notes whether the request's key is too old to run. The error is one of part, or errKeyOfFuture.
func (c *call) checkKeyAge() error {
	if c.keyAge == 0 {
		return nil
	}
	part, err := c.keyPart(c.r)
	switch {
	case errors.Is(err, keyfunc.ErrMissing):
		return nil // the key has another source, such as the second one of keyfunc.First
	case err != nil:
		return err
	}
	made, ok := madeAt(part)
	if !ok {
		return nil
	}
	age := time.Since(made)
	if age < -maxKeyLead {
		return errKeyOfFuture
	}
	c.identity.expired = age > c.keyAge
	return nil
}

// madeAt returns when a key was made, if it is a UUID of version 7: its first 48 bits are the Unix time in milliseconds
// (RFC 9562 section 5.7).
func madeAt(key string) (made time.Time, ok bool) {
	id, err := uuid.Parse(key)
	isText := len(key) == len("00000000-0000-7000-8000-000000000000") // Parse also takes braces, a URN, and bare digits
	if err != nil || !isText || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16)), true
}

// lookOrClaim claims the request's key. It only looks at a key that is too old to run: then the state may be lock.Free.
func (c *call) lookOrClaim() (lock.Claim, error) {
	if !c.identity.expired {
		return c.sendClaim()
	}
	c.timing.asked = c.clock()
	return c.locker.Look(c.detached(), c.identity.key)
}
