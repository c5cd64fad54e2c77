package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onceguard/onceguard/internal/operate"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

const (
	maxForm   = 1 << 20 // bytes of a form, which may have a response
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

	once     *middleware.Middleware // WithMiddleware; may be nil
	resolves bool                   // WithResolve
}

// ServeHTTP serves the page and its forms.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeader(w.Header())
	form, status := p.read(w, r)
	switch {
	case status != 0:
		http.Error(w, http.StatusText(status), status)
	case form == nil:
		p.render(w, view{status: http.StatusOK})
	default:
		p.render(w, p.act(r, form))
	}
}

// read returns the form of a POST, nil for a GET, or the status with which to refuse the request.
func (p *page) read(w http.ResponseWriter, r *http.Request) (form url.Values, status int) {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case !p.allow(r), p.origins.Check(r) != nil:
		return nil, http.StatusForbidden
	case r.URL.RawQuery != "" || r.URL.ForceQuery: // a key does not belong into a URL
		return nil, http.StatusBadRequest
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return nil, 0
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, HEAD, POST")
		return nil, http.StatusMethodNotAllowed
	case err != nil || t != "application/x-www-form-urlencoded":
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
	switch form.Get("action") {
	case inspect:
		return p.inspect(r, key)
	case forget:
		return p.change(r, form, Entry{Action: forget, Key: key})
	case resolve:
		if p.resolves {
			return p.change(r, form, Entry{Action: resolve, Key: key})
		}
	}
	return view{status: http.StatusBadRequest, Key: key, Problem: "This form is not from this page."}
}

const (
	notAudited  = "It was not done, because it could not be recorded."
	notRecorded = "It was done, but could not be recorded. Tell the person who keeps the audit trail."
	mayBeDone   = " What was to be done may be done or not: look at the key again."
)

// audited calls do between two entries of the audit trail. A problem says that it was not done, or not recorded.
func (p *page) audited(r *http.Request, e Entry, do func() error) (problem string, err error) {
	if p.audit(r, e) != nil {
		return notAudited, nil
	}
	e.Err = do()
	e.Done = true
	if p.audit(r, e) != nil {
		problem = notRecorded
	}
	return problem, e.Err
}

func (p *page) inspect(r *http.Request, key string) (v view) {
	problem, err := p.audited(r, Entry{Action: inspect, Key: key}, func() error {
		f, err := p.look(r.Context(), key)
		v = p.found(f)
		return errors.Join(err, f.Unreadable)
	})
	switch {
	case problem != "":
		v = view{status: http.StatusServiceUnavailable, Problem: problem}
	case err != nil && !errors.Is(err, middleware.ErrUnreadable):
		v = view{}
		v.status, v.Problem = failed(err)
	}
	v.Key = cmp.Or(v.Key, key)
	return v
}

// look returns what the key holds.
func (p *page) look(ctx context.Context, key string) (operate.Finding, error) {
	if p.once != nil {
		return operate.NewFinding(p.once.Inspect(ctx, key))
	}
	info, err := p.locker.Inspect(ctx, key)
	f, err := operate.NewFinding(middleware.Inspection{Redis: info}, err)
	f.Unasked = true
	return f, err
}

// hasControl reports whether s has a character that could change how a log or a terminal shows what follows it, or is
// not UTF-8. Such characters are control characters, the separators of lines and paragraphs, and those that change the
// direction of the text (Unicode Standard Annex 9, section 2).
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool {
		return unicode.IsControl(c) || unicode.In(c, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || c == utf8.RuneError
	})
}

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	style string

	pageTemplate = template.Must(template.New("page").Parse(strings.Replace(pageText, "STYLE", style, 1)))
	styleSum     = sha256.Sum256([]byte(style))

	// policy is a Content-Security-Policy (level 3) that allows only this style sheet, and forms to the page itself.
	policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(styleSum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

func setHeader(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Add("Content-Security-Policy", policy) // an outer policy, if there is one, applies too
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// view is what the page shows.
type view struct {
	status int

	Problem string // what went wrong
	Key     string // in the form
	Found   *found // nil if nothing was looked at

	Done      string     // forget, resolve: it was done
	Journaled bool       // the journal was told, if there is one
	Form      url.Values // what was typed in, if it was refused
}

// Was returns what was typed into a field of the form that has the action.
func (v view) Was(action, field string) string {
	if v.Form.Get("action") != action {
		return ""
	}
	return v.Form.Get(field)
}

// found is what a key holds, and what can be done with it.
type found struct {
	operate.Finding
	Unknown    bool   // it is not known what has happened
	Unanswered bool   // it has happened, and the journal has no record of it
	Result     string // what its run leaves: a response, or the result of a function
	NoForget   string // why the page does not free it
	CanForget  bool   // there is something to remove
	CanResolve bool   // WithResolve: an outcome can be stored
}

// found returns the page for what a key holds.
func (p *page) found(of operate.Finding) view {
	state, hasRow, canAsk := of.State(), of.Journal.State != journal.Absent, of.HasJournal || !of.Journaled
	f := &found{Finding: of, Result: "response", Unknown: state == lock.Abandoned, Unanswered: of.IsUnanswered()}
	if f.IsFunction() {
		f.Result = "result"
	}
	switch {
	case state == lock.Free:
	case state == lock.Held:
		f.NoForget = "while its lease or its time in the journal lasts."
	case !f.Unknown && hasRow:
		f.NoForget = "because the journal has its outcome: see onceguard forget."
	case f.Unknown && p.once != nil && (f.Unreadable != nil || !canAsk):
		f.NoForget = "because it cannot read what is stored, or cannot ask the journal: see onceguard forget."
	default:
		f.CanForget = true
	}
	f.CanResolve = (f.Unknown && f.Run != "" && canAsk || f.Unanswered) && p.resolves
	return view{status: http.StatusOK, Key: f.Redis.Key, Found: f}
}

// IsFunction reports whether the run is a function's.
func (f *found) IsFunction() bool { return f.Run == middleware.FunctionRun }

// Text returns the meaning as a sentence, with a capital letter and a full stop.
func (f *found) Text() string {
	text := f.Meaning()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// Facts returns what else is known.
func (f *found) Facts() []operate.Line { return f.Lines(time.Now()) }

// render writes the page.
func (p *page) render(w http.ResponseWriter, v view) {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, v); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(v.status)
	_, _ = b.WriteTo(w) // an error means that the client disconnected
}
