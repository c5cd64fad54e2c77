package admin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onceguard/onceguard/internal/operate"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// change frees or resolves a key if it still holds what was looked at.
func (p *page) change(r *http.Request, form url.Values, entry Entry) view {
	entry.Token, entry.Reason = form.Get("token"), strings.TrimSpace(form.Get("reason"))
	problem := checkChange(entry, form.Get("ledger") == "yes")
	said := middleware.NothingHappened()
	if entry.Action == resolve && problem == "" {
		said, problem = outcome(form, &entry)
	}
	if problem != "" {
		return p.again(r, form, http.StatusUnprocessableEntity, problem)
	}
	unrecorded, err := p.audited(r, entry, func() error { return p.make(r.Context(), entry, said) })
	switch {
	case err != nil:
		status, problem := failed(err)
		if status == http.StatusServiceUnavailable {
			problem += mayBeDone
		}
		if unrecorded != "" {
			problem += " This result could not be recorded."
		}
		return p.again(r, form, status, problem)
	case unrecorded != "":
		return view{status: http.StatusServiceUnavailable, Key: entry.Key, Problem: unrecorded}
	}
	return view{status: http.StatusOK, Key: entry.Key, Done: entry.Action, Journaled: p.once != nil}
}

// again returns the page of what the key holds now, with a problem and with what was typed in.
func (p *page) again(r *http.Request, form url.Values, status int, problem string) view {
	v := p.inspect(r, strings.TrimSpace(form.Get("key")))
	v.status, v.Problem, v.Form = status, problem, form
	return v
}

// checkChange returns what is wrong with a form that changes a key, and "" if nothing is.
func checkChange(entry Entry, looked bool) string {
	switch n := utf8.RuneCountInString(entry.Reason); {
	case entry.Token == "" || len(entry.Token) > maxToken || hasControl(entry.Token):
		return "Look at the key first."
	case n == 0:
		return "Say why: the reason is recorded."
	case n > maxReason || hasControl(entry.Reason):
		return "The reason may have 500 characters, in one line, and no control characters."
	case !looked:
		return "Look in the ledger first, and tick that you have."
	}
	return ""
}

// outcome returns what the form says that the run has left, and sets what entry says about it.
func outcome(form url.Values, entry *Entry) (said middleware.Resolution, problem string) {
	if !form.Has("value") && !form.Has("failed") {
		return response(form, entry)
	}
	value, failed := text(form, "value"), text(form, "failed")
	entry.BodySHA256 = sum(value + failed) // one of them is empty
	switch {
	case (value == "") == (failed == ""):
		return said, "Enter the value of the function, or the text of its error."
	case failed != "":
		return middleware.Failed(failed), ""
	case !json.Valid([]byte(value)):
		return said, "Enter the value as JSON. If the service has once.WithCodec, run onceguard resolve."
	}
	return middleware.Returned([]byte(value)), ""
}

// text returns a field of several lines, whose ends a browser has changed.
func text(form url.Values, name string) string {
	return strings.ReplaceAll(form.Get(name), "\r\n", "\n")
}

func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// response is outcome for an HTTP request.
func response(form url.Values, entry *Entry) (said middleware.Resolution, problem string) {
	status, err := strconv.Atoi(strings.TrimSpace(form.Get("status")))
	if err != nil {
		return said, "Enter the status of the response, such as 201."
	}
	header := http.Header{}
	for line := range strings.Lines(form.Get("header")) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if operate.AddField(header, line) != nil {
			return said, "Enter each field of the header on its line, as Name: value."
		}
	}
	body := text(form, "body")
	entry.Status, entry.BodySHA256 = status, sum(body)
	return middleware.Responded(status, header, []byte(body)), ""
}

// make changes the key.
func (p *page) make(ctx context.Context, entry Entry, said middleware.Resolution) error {
	f, err := p.look(ctx, entry.Key)
	isRun := f.Run != "" || f.Unreadable != nil
	switch {
	case err != nil:
		return err
	case entry.Action == resolve, p.once != nil && f.State() == lock.Abandoned && isRun:
		return f.Resolve(ctx, p.once, p.locker, entry.Token, said, entry.Action == forget)
	case f.Journal.State != journal.Absent:
		return lock.ErrChanged
	case p.locker.IsNone(): // the key is free
		return nil
	}
	return p.locker.Forget(ctx, entry.Key, entry.Token, false)
}

// failed returns the status and the problem of what was not done, in the words of the command.
func failed(err error) (status int, problem string) {
	switch {
	case operate.IsUsage(err):
		return http.StatusUnprocessableEntity, "Nothing was changed: " + err.Error()
	case operate.IsRefusal(err):
		return http.StatusConflict, "Nothing was changed: " + err.Error()
	}
	return http.StatusServiceUnavailable, "Redis or the journal did not answer, or answered with an error."
}
