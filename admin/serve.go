package admin

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

const (
	maxForm   = 8 << 10 // bytes of a form
	maxAnswer = 1 << 20 // bytes of a form that has a response
	maxKey    = 300
	maxToken  = 100
	maxReason = 500 // characters
)

// page is the http.Handler. It is read-only once Handler has returned.
type page struct {
	locker  *lock.Locker
	allow   func(*http.Request) bool
	audit   func(*http.Request, Entry) error
	origins *http.CrossOriginProtection
	live    bool // WithLive

	once     *middleware.Middleware // WithMiddleware; may be nil
	resolves bool                   // WithResolve
}

// ServeHTTP serves the page and its forms.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeader(w.Header())
	if !p.allow(r) {
		http.Error(w, "forbidden", http.StatusForbidden)
		return
	}
	if err := p.origins.Check(r); err != nil {
		http.Error(w, "forbidden: the request comes from another site", http.StatusForbidden)
		return
	}
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		http.Error(w, "a key does not belong into a URL: use the form", http.StatusBadRequest)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		p.render(w, view{status: http.StatusOK})
	case http.MethodPost:
		form, status := p.readForm(w, r)
		if status != 0 {
			http.Error(w, http.StatusText(status), status)
			return
		}
		p.render(w, p.act(r, form))
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

// readForm returns the form of a POST, or the status with which to refuse it.
func (p *page) readForm(w http.ResponseWriter, r *http.Request) (form url.Values, status int) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/x-www-form-urlencoded" {
		return nil, http.StatusUnsupportedMediaType
	}
	limit := int64(maxForm)
	if p.resolves {
		limit = maxAnswer
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	switch err := r.ParseForm(); {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, http.StatusRequestEntityTooLarge
	case err != nil:
		return nil, http.StatusBadRequest
	}
	return r.PostForm, 0
}

// act does what the form asks for.
func (p *page) act(r *http.Request, form url.Values) view {
	if Action(form.Get("action")) == List && p.canList() {
		return p.list(r, strings.TrimSpace(form.Get("statuses")))
	}
	key := strings.TrimSpace(form.Get("key"))
	if key == "" || len(key) > maxKey || hasControl(key) {
		return view{status: http.StatusUnprocessableEntity, Problem: "Enter a storage key."}
	}
	switch Action(form.Get("action")) {
	case Inspect:
		return p.inspect(r, key)
	case Forget:
		return p.change(r, form, Entry{Action: Forget, Key: key, EvenIfLive: p.live && form.Get("live") == "yes"})
	case Resolve:
		if p.resolves {
			return p.change(r, form, Entry{Action: Resolve, Key: key})
		}
	}
	return view{status: http.StatusBadRequest, Key: key, Problem: "This form is not from this page."}
}

const (
	notAudited  = "It was not done, because it could not be recorded."
	notRecorded = "It was done, but could not be recorded. Tell the person who keeps the audit trail."
	notAnswered = "Redis or the journal did not answer, or answered with an error."
	mayBeDone   = " What was to be done may be done or not: look at the key again."
)

func (p *page) inspect(r *http.Request, key string) view {
	entry := Entry{Action: Inspect, Key: key}
	if p.audit(r, entry) != nil {
		return view{status: http.StatusServiceUnavailable, Key: key, Problem: notAudited}
	}
	seen, err := p.look(r.Context(), key)
	v := p.found(seen, err)
	if err != nil && !errors.Is(err, middleware.ErrUnreadable) {
		v = failed(key, err)
	}
	entry.Done, entry.Err = true, err
	if p.audit(r, entry) != nil {
		return view{status: http.StatusServiceUnavailable, Key: key, Problem: notRecorded}
	}
	return v
}

// look returns what the key holds. With middleware.ErrUnreadable all but the record is set.
func (p *page) look(ctx context.Context, key string) (seen middleware.Inspection, err error) {
	if p.once != nil {
		return p.once.Inspect(ctx, key)
	}
	seen.Redis, err = p.locker.Inspect(ctx, key)
	return seen, err
}

// hasControl reports whether s has a character that could change how a log or a terminal shows what follows it, or is
// not UTF-8. Such characters are control characters, the separators of lines and paragraphs, and those that change the
// direction of the text (Unicode Standard Annex 9, section 2).
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool {
		return unicode.IsControl(c) || unicode.In(c, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || c == utf8.RuneError
	})
}

// failed returns the page for an operation that failed.
func failed(key string, err error) view {
	v := view{Key: key, status: http.StatusConflict}
	switch {
	case errors.Is(err, lock.ErrNotStorageKey):
		v.status = http.StatusUnprocessableEntity
		v.Problem = "This is not a storage key of this service. Logs have it as the key of an Event, and problems as their instance."
	case errors.Is(err, lock.ErrForeign):
		v.Problem = "Another program, or a newer version, has written this key. Nothing was changed."
	case errors.Is(err, lock.ErrChanged):
		v.Problem = "The key has changed since you looked at it. Nothing was changed. This is what it holds now."
	case errors.Is(err, lock.ErrLive):
		v.Problem = "The request may still be running. Nothing was changed."
	case errors.Is(err, middleware.ErrResolution):
		v.status, v.Problem = http.StatusUnprocessableEntity, "Nothing was changed: "+err.Error()
	case errors.Is(err, middleware.ErrUnreadable):
		v.Problem = "What is stored cannot be read: it is damaged, or the service does not have its encryption key. Nothing was changed."
	case errors.Is(err, middleware.ErrSettled):
		v.Problem = "The run has an outcome, which this page does not replace. Nothing was changed. This is what the key holds now."
	case errors.Is(err, middleware.ErrJournaled):
		v.Problem = "The request has a journal, which this page cannot ask. Nothing was changed: use the command onceguard resolve."
	case errors.Is(err, lock.ErrNotReplicated):
		v.status, v.Problem = http.StatusServiceUnavailable, "The key was changed, but a failover may undo that. Look at it again."
	default:
		v.status, v.Problem = http.StatusServiceUnavailable, notAnswered
	}
	return v
}
