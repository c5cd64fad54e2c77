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

	"github.com/onceguard/onceguard/lock"
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
	Reason  string
	Freed   bool   // the key was freed
	Found   *found // nil if nothing was looked at
	Style   template.CSS
}

// found is what a key holds, in words.
type found struct {
	Key, Token string
	State      string
	Meaning    string
	Facts      []fact
	CanForget  bool // there is something to remove
	Live       bool // the handler may still be running
	AskLive    bool // Live, and WithLive: show the checkbox
}

type fact struct{ Name, Value string }

// found returns the page for what a key holds.
func (p *page) found(info lock.Info) view {
	f := &found{Key: info.Key, Token: info.Token, State: info.State.String(), Meaning: meanings[info.State]}
	f.Live = info.State == lock.Held
	f.AskLive = f.Live && p.live
	f.CanForget = info.State != lock.Free && (!f.Live || p.live)
	add := func(name, value string) {
		if value != "" {
			f.Facts = append(f.Facts, fact{name, value})
		}
	}
	add("Claimed", instant(info.ClaimedAt))
	add("Stored", instant(info.SettledAt))
	add("Lease ends in", left(info.LeaseLeft))
	add("Kept without an outcome for", left(info.HoldLeft))
	if info.TTL < 0 {
		add("Free by itself in", "never: another program has removed the expiry")
	} else {
		add("Free by itself in", left(info.TTL))
	}
	if info.State != lock.Free {
		add("Size", strconv.Itoa(info.Size)+" bytes")
	}
	if info.Fence != 0 {
		add("Fence", strconv.FormatInt(info.Fence, 10))
	}
	return view{status: http.StatusOK, Key: info.Key, Found: f}
}

var meanings = map[lock.State]string{
	lock.Free:      "Redis has no such key: it may be mistyped. A request with it runs, unless a journal has its outcome.",
	lock.Held:      "A request with this key is running, or its process died a moment ago. Others get 409, or wait.",
	lock.Abandoned: "A request with this key ended without an outcome, or its process died. Others get 409.",
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
