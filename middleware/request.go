package middleware

import (
	"errors"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
)

// findKey derives the key, before a byte of the body is read unless the key is in there. It answers or passes on the
// request itself when there is none.
func (c *call) findKey() (ok bool) {
	body := c.r.Body
	if body == nil {
		body = http.NoBody
	}
	limited := &c.limited
	*limited = requestBody{ReadCloser: body, w: c.w, limit: c.maxBody, left: c.maxBody}
	c.r.Body = limited
	key, err := c.keyFunc(c.r)
	// The body that is read from now on may be one that a key function has put there. The request gets its own back:
	// net/http looks at it when it answers before the body was read.
	c.source, c.r.Body = c.r.Body, body
	replaced := c.source != io.ReadCloser(limited)
	restore := func() *http.Request {
		if replaced {
			c.r.Body = c.source
		}
		return c.r
	}

	switch {
	case limited.failed() == nil && limited.read && !replaced:
		c.refuse(InvalidKey, keyFailed, errBodyUsed)
	case err == nil && key != "":
		c.key, c.outer = key, FromContext(c.r.Context())
		if c.outer != nil && c.outer.runs(c.storageKey()) { // mounted twice
			c.next.ServeHTTP(c.w, restore())
			return false
		}
		return true
	case limited.failed() != nil:
		c.refuseBody(limited.failed())
	case errors.Is(err, keyfunc.ErrMissing) && !c.required:
		c.pass(restore(), nil)
	case errors.Is(err, keyfunc.ErrMissing):
		c.refuse(MissingKey, keyMissing.in(err), nil)
	case err == nil, errors.Is(err, keyfunc.ErrInvalid):
		c.refuse(InvalidKey, keyInvalid, err)
	case errors.Is(err, keyfunc.ErrNoUser):
		c.refuse(NoUser, userUnknown, nil)
	default:
		c.refuse(InvalidKey, keyFailed, err)
	}
	return false
}

// readBody reads the body whole, for the fingerprint and for the handler. It answers the request itself if that fails.
func (c *call) readBody() bool {
	if c.r.ContentLength > c.maxBody {
		c.refuse(TooLarge, bodyTooLarge, nil)
		return false
	}
	limit := c.maxBody
	if c.r.ContentLength > 0 {
		limit = c.r.ContentLength
	}
	buf := newBuffer()
	body, err := readAll(buf.b, c.source, int(limit))
	if err != nil {
		c.refuseBody(err)
		return false
	}
	if len(body) == 0 && c.hadBody() {
		c.refuse(InvalidKey, keyFailed, errBodyUsed)
		return false
	}
	buf.b = body
	c.body, c.source = buf, nil // a key function's copy of it is not needed any more
	c.takeFingerprints()
	return true
}

// hadBody tells whether the request came with a body, or with a form that somebody has already parsed of it.
func (c *call) hadBody() bool {
	return c.r.ContentLength > 0 || len(c.r.PostForm) > 0 || c.r.MultipartForm != nil
}

// errBodyUsed keeps two requests from looking alike because nothing is left to tell them apart by.
var errBodyUsed = errors.New("middleware: the body was used up before its fingerprint was taken: by an outer middleware, " +
	"or by a key function that did not put it back as keyfunc.Form does")

func (c *call) refuseBody(err error) {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		c.refuse(TooLarge, bodyTooLarge, nil)
		return
	}
	c.refuse(Unreadable, bodyUnreadable, err)
}
