package admin

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/onceguard/onceguard/lock"
)

const (
	maxForm   = 8 << 10 // bytes of a form
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
}

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
		form, status := readForm(w, r)
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
func readForm(w http.ResponseWriter, r *http.Request) (form url.Values, status int) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/x-www-form-urlencoded" {
		return nil, http.StatusUnsupportedMediaType
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
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
	key := strings.TrimSpace(form.Get("key"))
	if key == "" || len(key) > maxKey || hasControl(key) {
		return view{status: http.StatusUnprocessableEntity, Problem: "Enter a storage key."}
	}
	switch Action(form.Get("action")) {
	case Inspect:
		return p.inspect(r, key)
	case Forget:
		return p.forget(r, Entry{
			Action: Forget, Key: key, Token: form.Get("token"), Reason: strings.TrimSpace(form.Get("reason")),
			EvenIfLive: p.live && form.Get("live") == "yes",
		})
	}
	return view{status: http.StatusBadRequest, Key: key, Problem: "The form is not one of this page."}
}

const (
	notAudited  = "It was not done, because it could not be recorded."
	notRecorded = "It was done, and could not be recorded. Tell the person who keeps the audit trail."
)

func (p *page) inspect(r *http.Request, key string) view {
	entry := Entry{Action: Inspect, Key: key}
	if p.audit(r, entry) != nil {
		return view{status: http.StatusServiceUnavailable, Key: key, Problem: notAudited}
	}
	info, err := p.locker.Inspect(r.Context(), key)
	v := p.found(info)
	if err != nil {
		v = failed(key, err)
	}
	entry.Done, entry.Err = true, err
	if p.audit(r, entry) != nil {
		return view{status: http.StatusServiceUnavailable, Key: key, Problem: notRecorded}
	}
	return v
}

// forget frees a key if it still holds what was looked at.
func (p *page) forget(r *http.Request, entry Entry) view {
	if problem := checkForget(entry); problem != "" {
		v := p.look(r, entry.Key)
		v.status, v.Problem, v.Reason = http.StatusUnprocessableEntity, problem, entry.Reason
		return v
	}
	if p.audit(r, entry) != nil {
		return view{status: http.StatusServiceUnavailable, Key: entry.Key, Problem: notAudited}
	}
	var opts []lock.ForgetOption
	if entry.EvenIfLive {
		opts = append(opts, lock.EvenIfLive())
	}
	err := p.locker.Forget(r.Context(), entry.Key, entry.Token, opts...)
	v := view{status: http.StatusOK, Key: entry.Key, Freed: true}
	if err != nil {
		after := failed(entry.Key, err)
		v = p.look(r, entry.Key)
		v.status, v.Problem, v.Reason = after.status, after.Problem, entry.Reason
	}
	entry.Done, entry.Err = true, err
	switch recorded := p.audit(r, entry); {
	case recorded != nil && err == nil:
		v.status, v.Problem = http.StatusServiceUnavailable, notRecorded
	case recorded != nil:
		v.Problem += " This result could not be recorded."
	}
	return v
}

// checkForget returns what is wrong with a form that frees a key, and "" if nothing is.
func checkForget(entry Entry) string {
	switch n := utf8.RuneCountInString(entry.Reason); {
	case entry.Token == "" || len(entry.Token) > maxToken || hasControl(entry.Token):
		return "Look at the key first."
	case n == 0:
		return "Say why: the reason is recorded."
	case n > maxReason || hasControl(entry.Reason):
		return "The reason may have 500 characters, in one line, and no control characters."
	}
	return ""
}

// hasControl reports whether s has a character that could change how a log or a terminal shows what follows it, or is
// not UTF-8. Such characters are control characters, the separators of lines and paragraphs, and those that change the
// direction of the text (Unicode Standard Annex 9, section 2).
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool {
		return unicode.IsControl(c) || unicode.In(c, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || c == utf8.RuneError
	})
}

// look returns the page of what the key holds, to which the caller adds the result of something else. It has only the
// key if Redis does not answer.
func (p *page) look(r *http.Request, key string) view {
	info, err := p.locker.Inspect(r.Context(), key)
	if err != nil {
		return view{Key: key}
	}
	return p.found(info)
}

// failed returns the page for an operation that failed.
func failed(key string, err error) view {
	v := view{Key: key, status: http.StatusConflict}
	switch {
	case errors.Is(err, lock.ErrNotStorageKey):
		v.status = http.StatusUnprocessableEntity
		v.Problem = "This is not a storage key of this service. Logs have it as the key of an Event, and clients as the instance of a problem."
	case errors.Is(err, lock.ErrForeign):
		v.Problem = "Another program has written this key, or a newer version. It was left as it is."
	case errors.Is(err, lock.ErrChanged):
		v.Problem = "The key has changed since you looked at it. Nothing was freed. This is what it holds now."
	case errors.Is(err, lock.ErrLive):
		v.Problem = "The request may still be running. Nothing was freed."
	case errors.Is(err, lock.ErrNotReplicated):
		v.status, v.Problem = http.StatusServiceUnavailable, "The key was freed, and a failover may bring it back. Look at it again."
	default:
		v.status, v.Problem = http.StatusServiceUnavailable, "Redis did not answer, or with an error. What was to be done may be done or not: look at the key again."
	}
	return v
}
