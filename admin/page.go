package admin

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/internal/operate"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	style string

	pageTemplate = template.Must(template.New("page").Parse(pageText))
	policy       = policyFor(style)
)

// policyFor returns a Content-Security-Policy (level 3) that allows only this style sheet, and forms to the page
// itself.
func policyFor(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

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
	Reason  string // in the form that frees
	Found   *found // nil if nothing was looked at

	Freed     bool // the key was freed
	Resolved  bool // an outcome was stored
	Journaled bool // the journal was told, if there is one

	Why, Status, Header, Body string // in the form that stores a response
	Value, Failed             string // in the form that stores a function's result
	Style                     template.CSS

	CanList    bool
	Statuses   string // in the form that lists
	IsList     bool   // the list was asked for
	Listed     []stored
	More       bool // there are others
	Unreadable int  // keys that could not be read
}

// found is what a key holds, and what can be done with it.
type found struct {
	operate.Finding
	State      string
	Meaning    string
	Facts      []fact
	Token      string // in the forms
	IsFunction bool
	CanForget  bool   // there is something to remove
	NoForget   string // why the page does not free it
	CanResolve bool   // WithResolve: an outcome can be stored
	Unknown    bool   // it is not known what has happened
	Unanswered bool   // it has happened, and the journal has no record of it
	Journaled  bool   // the journal was asked, if there is one
	AskLive    bool   // the handler may still be running, and WithLive: show the checkbox
}

type fact struct{ Name, Value string }

// found returns the page for what a key holds. err is nil or a middleware.ErrUnreadable.
func (p *page) found(seen middleware.Inspection, err error) view {
	now := time.Now()
	f := &found{Finding: operate.NewFinding(seen, err, now), Token: seen.Redis.Token, Journaled: p.once != nil}
	f.Unasked = p.once == nil
	state := f.Finding.State()
	f.State, f.Meaning = state.String(), sentence(f.Finding.Meaning())
	f.Unknown, f.Unanswered, f.IsFunction = state == lock.Abandoned, f.IsUnanswered(), f.Run == middleware.FunctionRun
	if seen.Journal.State == journal.Unfinished || f.Unanswered {
		f.Token = seen.Journal.Token
	}
	for _, line := range f.Lines(now) {
		f.Facts = append(f.Facts, fact{cmp.Or(labels[line.Name], line.Name), line.Text})
	}
	isLive := state == lock.Held
	switch {
	case state == lock.Free:
	case isLive && (!p.live || seen.Journal.State != journal.Absent):
		f.NoForget = "It cannot be freed from this page while its lease or its time in the journal lasts."
	case !f.Unknown && seen.Journal.State != journal.Absent:
		f.NoForget = "The journal has its outcome. It cannot be freed from this page: see onceguard forget."
	case f.Unknown && p.once != nil && (err != nil || seen.Journaled && !seen.HasJournal):
		f.NoForget = "It cannot be freed from this page, which cannot read what is stored, or cannot ask the journal: see onceguard forget."
	default:
		f.CanForget, f.AskLive = true, isLive
	}
	f.CanResolve = (f.Unknown && f.Run != "" && (seen.HasJournal || !seen.Journaled) || f.Unanswered) && p.resolves
	return view{status: http.StatusOK, Key: seen.Redis.Key, Found: f}
}

// labels are the names of facts that differ from those of the command.
var labels = map[string]string{
	"stored": "is stored", "hold": "kept without an outcome", "ends": "free by itself", "redis": "in Redis", "journal": "in the journal",
}

// sentence returns text with a capital letter and a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// render writes the page.
func (p *page) render(w http.ResponseWriter, v view) {
	v.Style, v.CanList = template.CSS(style), p.canList() && v.Found == nil
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
