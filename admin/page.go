package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"time"

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
	Resolved  bool // a response was stored
	Journaled bool // the journal was told, if there is one

	Why, Status, Header, Body string // in the form that stores a response
	Style                     template.CSS
}

// found is what a key holds, in words.
type found struct {
	Key, Token string
	State      string
	Meaning    string
	Facts      []fact
	CanForget  bool // there is something to remove
	CanResolve bool // WithResolve: a response can be stored
	Unknown    bool // it is not known what has happened
	Unanswered bool // it has happened, and the journal has no response
	InJournal  bool // a journal answers the next request, so freeing the key in Redis has no effect
	Journaled  bool // the journal was asked, if there is one
	Live       bool // the handler may still be running
	AskLive    bool // Live, and WithLive: show the checkbox
}

type fact struct{ Name, Value string }

// stateOf returns what the next request with the key meets: Redis is asked first, and then the journal.
func stateOf(seen middleware.Inspection) lock.State {
	switch {
	case seen.Redis.State == lock.Settled || seen.Journal.State == journal.Done:
		return lock.Settled
	case seen.Redis.State == lock.Held || seen.Journal.State == journal.Running:
		return lock.Held
	case seen.Redis.State == lock.Abandoned || seen.Journal.State == journal.Unfinished:
		return lock.Abandoned
	}
	return lock.Free
}

// found returns the page for what a key holds. err may be middleware.ErrUnreadable.
func (p *page) found(seen middleware.Inspection, err error) view {
	info, state := seen.Redis, stateOf(seen)
	f := &found{
		Key: info.Key, Token: info.Token, State: state.String(), Meaning: meanings[state], Journaled: p.once != nil,
		Live: state == lock.Held, Unknown: state == lock.Abandoned, InJournal: seen.Journal.State != journal.Absent && state != lock.Abandoned,
	}
	f.Unanswered = seen.Journal.State == journal.Done && info.State != lock.Settled && seen.Stored == nil && err == nil
	if seen.Journal.State == journal.Unfinished || f.Unanswered {
		f.Token = seen.Journal.Token
	}
	f.AskLive = f.Live && p.live && !f.InJournal
	f.CanForget = state != lock.Free && !f.InJournal && (!f.Live || p.live)
	f.CanResolve = (f.Unknown || f.Unanswered) && p.resolves
	switch {
	case state == lock.Free && p.locker.IsNone():
		f.Meaning = "The journal has no such key: it may be mistyped. A request with it runs."
	case state == lock.Held && info.State == lock.Free:
		f.Meaning = "A request with this key is running, or its process died before its limit. Others get 409, or wait."
	case state == lock.Abandoned && isHandedOut(seen.Journal):
		f.Meaning = "A request with this key ended without an outcome, and a sweep is finding out what happened. Others get 409."
	case f.Unanswered:
		f.Meaning = "A request with this key was processed, and the journal has no response of it. Others get 409."
	case state == lock.Free && p.once != nil:
		f.Meaning = "Neither Redis nor the journal, if the service has one, has such a key: it may be mistyped. A request with it runs."
	case state == lock.Settled && seen.Stored != nil && seen.Stored.Unknown:
		f.Meaning = "A part of the response was sent before the request failed. It is not known whether it took effect. Others get 409."
	case state == lock.Settled && seen.Stored != nil && seen.Stored.Tombstone:
		f.Meaning = "A request with this key was processed. Its response was not kept: others get 409."
	case state == lock.Settled && seen.Stored != nil:
		f.Meaning = "A request with this key has ended. Others get its response."
	}
	f.addFacts(seen, err, p.locker.IsNone())
	return view{status: http.StatusOK, Key: info.Key, Found: f}
}

// isHandedOut reports whether a sweep has the row, for the time Left.
func isHandedOut(e journal.Entry) bool { return e.State == journal.Unfinished && e.Left > 0 }

// standing returns the state of a row. The command onceguard inspect has the same words.
func standing(e journal.Entry) string {
	if isHandedOut(e) {
		return "unfinished, and handed to a sweep for " + left(e.Left) + " more"
	}
	return e.State.String()
}

// addFacts adds the table.
func (f *found) addFacts(seen middleware.Inspection, err error, withoutRedis bool) {
	info := seen.Redis
	add := func(name, value string) {
		if value != "" {
			f.Facts = append(f.Facts, fact{name, value})
		}
	}
	switch r := seen.Stored; {
	case r == nil || r.Tombstone:
	case r.Function:
		add("Result", "of a function")
	default:
		add("Response", "status "+strconv.Itoa(r.Status)+", a body of "+strconv.Itoa(r.BodySize)+" bytes")
	}
	if seen.Stored != nil {
		add("Completed", instant(seen.Stored.Completed))
	}
	if err != nil {
		add("Response", "cannot be read with the service's encryption keys")
	}
	if seen.Journal.State != journal.Absent {
		if !withoutRedis {
			add("In Redis", info.State.String())
		}
		add("In the journal", standing(seen.Journal))
	}
	if age := seen.Journal.Age; age > 0 {
		add("Began", instant(time.Now().Add(-age))+", "+left(age)+" ago")
	}
	add("Claimed", instant(info.ClaimedAt))
	add("Stored", instant(info.SettledAt))
	add("Lease ends in", left(info.LeaseLeft))
	add("Kept without an outcome for", left(info.HoldLeft))
	switch {
	case info.TTL < 0:
		add("Free by itself in", "never: another program has removed the expiry")
	case seen.Journal.State == journal.Absent:
		add("Free by itself in", left(info.TTL))
	case seen.Journal.State == journal.Done:
		add("Free by itself in", left(max(info.TTL, seen.Journal.Left)))
	default:
		add("Free by itself in", "never: the run, a sweep of the journal or an operator ends it")
	}
	if info.State != lock.Free {
		add("Size", strconv.Itoa(info.Size)+" bytes")
	}
	if info.Fence != 0 {
		add("Fence", strconv.FormatInt(info.Fence, 10))
	}
}

var meanings = map[lock.State]string{
	lock.Free:      "Redis has no such key: it may be mistyped. A request with it runs, unless a journal has its outcome.",
	lock.Held:      "A request with this key is running, or its process died a moment ago. Others get 409, or wait.",
	lock.Abandoned: "A request with this key ended without an outcome, or its process died. Nobody knows whether it took effect. Others get 409.",
	lock.Settled:   "A request with this key has ended. Others get its response, or 409 if that could not be kept.",
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

func left(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return max(time.Second, d.Round(time.Second)).String()
}

// render writes the page.
func (p *page) render(w http.ResponseWriter, v view) {
	v.Style = template.CSS(style)
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
