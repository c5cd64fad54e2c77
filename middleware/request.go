package middleware

import (
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/onceguard/onceguard/internal/problem"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/reread"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
)

// input is what was read of a request: its key, its body and its fingerprints.
type input struct {
	run     run.Run
	outer   *Execution    // the run around this request; nil if there is none
	body    []byte        // the whole body; nil before it is read, and when it is no longer needed
	doubt   error         // for the Event: reread.ErrMaybeUsed if the body may be missing; else nil
	limited requestBody   // the client's body: limits what is read
	source  io.ReadCloser // of the body: limited, or what the key function has replaced it with
}

// original returns the request as it arrived, for a handler that runs unprotected or nested.
func (in *input) original(r *http.Request) *http.Request {
	if in.isReplaced() {
		r.Body = in.source
	}
	return r
}

// isReplaced reports whether the key function has replaced the request's body.
func (in *input) isReplaced() bool { return in.source != io.ReadCloser(&in.limited) }

// refusal is a problem that a request gets, and what the observer is told.
type refusal struct {
	problem problem.Problem
	event   Event
}

// refused returns the refusal of that kind. err is for the Event.
func (o *options) refused(kind run.Kind, err error) *refusal {
	p := problem.New(kind)
	if status, ok := o.statuses[p.Type]; ok {
		p.Status = status
	}
	return &refusal{p, Event{Outcome: kind.Answer().Outcome, Status: p.Status, Err: err}}
}

// way is how a request proceeds once it is read.
type way int

const (
	protected   way = iota // the zero way: it has a key, or is refused
	unprotected            // it has no key
	nested                 // it already runs under this key: the middleware is mounted twice
)

// read reads the key and, if the request is to be protected, the body and the fingerprint. It returns how the request
// proceeds, or its refusal. w may be nil: then a body that is too long does not close the connection, and no key is echoed.
func (m *Middleware) read(w http.ResponseWriter, r *http.Request, in *input) (way, *refusal) {
	way, refusal := m.readKey(w, r, in)
	if way != protected || refusal != nil {
		return way, refusal
	}
	return protected, m.readBody(r, in)
}

// readKey calls the key function, before anything else reads the body.
func (m *Middleware) readKey(w http.ResponseWriter, r *http.Request, in *input) (way, *refusal) {
	body := r.Body
	if body == nil {
		body = http.NoBody
	}
	in.limited = requestBody{ReadCloser: body, w: w, limit: m.maxBody}
	r.Body = &in.limited
	key, err := m.keyFunc(r)
	if err == nil {
		in.run.TooOld, err = m.isTooOld(r)
	}
	if m.echoPart != nil && w != nil {
		m.echo(w, r)
	}
	// The key function may have replaced the body: the new one is read. The request gets its own back, which net/http
	// inspects if it answers before the body was read.
	in.source, r.Body = r.Body, body

	failed := in.limited.failed()
	isUsedUp := in.limited.read > 0 && !in.isReplaced()
	switch {
	case isUsedUp && failed == nil:
		return protected, m.refused(run.KeyFailed, reread.ErrUsed)
	case err == nil && key != "":
		in.run.Key, in.outer = key, FromContext(r.Context())
		if in.outer != nil && in.outer.runs(m.guard.StorageKey(&in.run.Request), m.shadow) {
			return nested, nil
		}
		return protected, nil
	case failed != nil:
		return protected, m.refuseBody(failed)
	case errors.Is(err, keyfunc.ErrMissing) && !m.required:
		return unprotected, nil
	}
	return protected, m.refuseKey(err)
}

// refuseKey returns the refusal of a request that has no key because of err; a nil err means that it is empty.
func (m *Middleware) refuseKey(err error) *refusal {
	switch {
	case errors.Is(err, keyfunc.ErrMissing):
		missing := m.refused(run.KeyMissing, nil)
		missing.problem.NamePlace(err)
		return missing
	case errors.Is(err, errKeyOfFuture):
		return m.refused(run.KeyOfFuture, err)
	case err == nil, errors.Is(err, keyfunc.ErrInvalid):
		return m.refused(run.KeyInvalid, err)
	case errors.Is(err, keyfunc.ErrNoUser):
		return m.refused(run.UserUnknown, nil)
	}
	return m.refused(run.KeyFailed, err)
}

// readBody reads the whole body and makes the fingerprints.
func (m *Middleware) readBody(r *http.Request, in *input) *refusal {
	if r.ContentLength > m.maxBody {
		return m.refused(run.BodyTooLarge, nil)
	}
	const trusted = 64 << 10 // bytes: a longer body gets its memory as it comes
	body, err := readAll(in.source, int(min(max(r.ContentLength, 0), trusted)))
	if err != nil {
		return m.refuseBody(err)
	}
	switch isEmpty := len(body) == 0; {
	case isEmpty && hadBody(r):
		return m.refused(run.KeyFailed, reread.ErrUsed)
	case isEmpty && r.ContentLength < 0:
		in.doubt = reread.ErrMaybeUsed
	}
	in.body, in.source = body, nil // a key function's copy of it is no longer needed
	for _, rule := range m.rules { // all of them now, because a waiter no longer has the body when it compares
		in.run.Fingerprints = append(in.run.Fingerprints, record.Fingerprint{Kind: rule.kind, Sum: rule.sum(r, in.body)})
	}
	return nil
}

// readAll reads all of r, which should have size bytes.
func readAll(r io.Reader, size int) ([]byte, error) {
	b := make([]byte, 0, size+1) // one more, for the Read that returns io.EOF
	for {
		b = slices.Grow(b, 1)
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// hadBody reports whether the request had a body, by its Content-Length or by a form parsed from it.
func hadBody(r *http.Request) bool {
	return r.ContentLength > 0 || len(r.PostForm) > 0 || r.MultipartForm != nil
}

// refuseBody returns the refusal of a request whose body could not be read.
func (m *Middleware) refuseBody(err error) *refusal {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return m.refused(run.BodyTooLarge, nil)
	}
	return m.refused(run.BodyUnreadable, err)
}
