package middleware

import (
	"errors"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware/internal/buffer"
)

// way is how a request proceeds once its key is known.
type way int

const (
	protected   way = iota // the zero way: it has a key, or is refused
	unprotected            // it has no key
	nested                 // it already runs under this key: the middleware is mounted twice
)

// findKey calls the key function, before anything else reads the body. It returns how the request proceeds, or its
// refusal.
func (c *call) findKey() (way, *answer) {
	id, body := &c.identity, c.r.Body
	if body == nil {
		body = http.NoBody
	}
	c.limitedBody = requestBody{ReadCloser: body, w: c.w, limit: c.maxBody, remaining: c.maxBody}
	c.r.Body = &c.limitedBody
	key, err := c.keyFunc(c.r)
	if err == nil {
		err = c.checkKeyAge()
	}
	// The key function may have replaced the body: the new one is read. The request gets its own back, which net/http
	// inspects if it answers before the body was read.
	id.source, c.r.Body = c.r.Body, body

	failed := c.limitedBody.failed()
	isUsedUp := c.limitedBody.read && !c.replaced()
	switch {
	case isUsedUp && failed == nil:
		return protected, refuse(InvalidKey, &keyFailed, errBodyUsed)
	case err == nil && key != "":
		id.key, id.outer = key, FromContext(c.r.Context())
		if id.outer != nil && id.outer.runs(c.storageKey(), c.shadow) {
			return nested, nil
		}
		return protected, nil
	case failed != nil:
		return protected, refuseBody(failed)
	case errors.Is(err, keyfunc.ErrMissing) && !c.required:
		return unprotected, nil
	case errors.Is(err, keyfunc.ErrMissing):
		return protected, refuse(MissingKey, keyMissing.withPlace(err), nil)
	case errors.Is(err, errKeyOfFuture):
		return protected, refuse(InvalidKey, &keyOfFuture, err)
	case err == nil, errors.Is(err, keyfunc.ErrInvalid):
		return protected, refuse(InvalidKey, &keyInvalid, err)
	case errors.Is(err, keyfunc.ErrNoUser):
		return protected, refuse(NoUser, &userUnknown, nil)
	}
	return protected, refuse(InvalidKey, &keyFailed, err)
}

// replaced reports whether the key function has replaced the request's body.
func (c *call) replaced() bool { return c.identity.source != io.ReadCloser(&c.limitedBody) }

// original returns the request as it arrived, for a handler that runs unprotected or nested.
func (c *call) original() *http.Request {
	if c.replaced() {
		c.r.Body = c.identity.source
	}
	return c.r
}

// readBody reads the whole body and makes the fingerprints.
func (c *call) readBody() *answer {
	if c.r.ContentLength > c.maxBody {
		return refuse(TooLarge, &bodyTooLarge, nil)
	}
	limit := c.maxBody
	if c.r.ContentLength > 0 {
		limit = c.r.ContentLength
	}
	body := buffer.New()
	if err := body.ReadAll(c.identity.source, int(limit)); err != nil {
		return refuseBody(err)
	}
	switch isEmpty := len(body.Bytes()) == 0; {
	case isEmpty && c.hadBody():
		return refuse(InvalidKey, &keyFailed, errBodyUsed)
	case isEmpty && c.r.ContentLength < 0:
		c.identity.doubt = errMaybeUsed
	}
	c.identity.body, c.identity.source = body, nil // a key function's copy of it is no longer needed
	c.takeFingerprints()
	return nil
}

// hadBody reports whether the request had a body, by its Content-Length or by a form parsed from it.
func (c *call) hadBody() bool {
	return c.r.ContentLength > 0 || len(c.r.PostForm) > 0 || c.r.MultipartForm != nil
}

// errBodyUsed is why a request is refused whose body was read before: without the body, two requests would look alike.
var errBodyUsed = errors.New("middleware: the body was used up before its fingerprint was taken: by an outer middleware, " +
	"or by a key function that did not put it back as keyfunc.Form does")

// errMaybeUsed is the Event's error for a request whose body is empty and had no length. Another middleware may have read
// it, and then requests with different bodies look alike. The request runs, because the body may have been sent empty.
var errMaybeUsed = errors.New("middleware: the body is empty although its length was not known in advance: an outer middleware " +
	"may have read it, and requests with different bodies then count as the same")

// refuseBody returns the answer to a request whose body could not be read.
func refuseBody(err error) *answer {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return refuse(TooLarge, &bodyTooLarge, nil)
	}
	return refuse(Unreadable, &bodyUnreadable, err)
}
