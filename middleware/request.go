package middleware

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
)

// key derives the key, before a byte of the body is read unless the key is in there. It answers or passes on the
// request itself when there is none.
func (c *call) key() (key string, ok bool) {
	body := c.r.Body
	if body == nil {
		body = http.NoBody
	}
	limited := &requestBody{ReadCloser: http.MaxBytesReader(c.w, body, c.maxBody)}
	c.r.Body = limited
	key, err := c.keyFunc(c.r)
	// The body that is read from now on may be one that a key function has put there. The request gets its own back:
	// net/http looks at it when it answers before the body was read.
	c.source, c.r.Body = c.r.Body, body
	used := c.source == io.ReadCloser(limited) && limited.read
	restore := func() *http.Request {
		if c.source != io.ReadCloser(limited) {
			c.r.Body = c.source
		}
		return c.r
	}

	switch {
	case limited.err == nil && used:
		c.refuse(InvalidKey, keyFailed, errBodyUsed)
	case err == nil && key != "":
		c.storageKey = c.locker.StorageKey(key)
		if FromContext(c.r.Context()).runs(c.storageKey) { // mounted twice
			c.next.ServeHTTP(c.w, restore())
			return "", false
		}
		c.event.Key = c.storageKey
		return key, true
	case limited.err != nil:
		c.refuseBody(limited.err)
	case errors.Is(err, keyfunc.ErrMissing) && !c.required:
		c.pass(restore(), nil)
	case errors.Is(err, keyfunc.ErrMissing):
		c.refuse(MissingKey, keyMissing, nil)
	case err == nil, errors.Is(err, keyfunc.ErrInvalid):
		c.refuse(InvalidKey, keyInvalid, nil)
	case errors.Is(err, keyfunc.ErrNoUser):
		c.refuse(NoUser, userUnknown, nil)
	default:
		c.refuse(InvalidKey, keyFailed, err)
	}
	return "", false
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
	body, err := readAll(c.source, int(limit))
	if err != nil {
		c.refuseBody(err)
		return false
	}
	if c.r.ContentLength > 0 && len(body) == 0 {
		c.refuse(InvalidKey, keyFailed, errBodyUsed)
		return false
	}
	c.body, c.source = body, nil // a key function's copy of it is not needed any more
	c.fingerprint = c.fingerprinter(c.r, c.body)
	return true
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

func rereadable(body []byte) io.ReadCloser {
	if len(body) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(body))
}

// requestBody remembers whether it was read, and why that failed, for a key function may wrap the error or hide it.
type requestBody struct {
	io.ReadCloser
	read bool
	err  error
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read = b.read || n > 0
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}
