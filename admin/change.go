package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// change frees or resolves a key if it still holds what was looked at.
func (p *page) change(r *http.Request, form url.Values, entry Entry) view {
	entry.Token, entry.Reason = form.Get("token"), strings.TrimSpace(form.Get("reason"))
	problem := checkChange(entry, form.Get("ledger") == "yes")
	said := middleware.NothingHappened()
	if entry.Action == Resolve && problem == "" {
		said, problem = outcome(form, &entry)
	}
	if problem != "" {
		return p.again(r, form, http.StatusUnprocessableEntity, problem)
	}
	if p.audit(r, entry) != nil {
		return view{status: http.StatusServiceUnavailable, Key: entry.Key, Problem: notAudited}
	}
	err := p.make(r.Context(), entry, said)
	entry.Done, entry.Err = true, err
	recorded := p.audit(r, entry)
	if err != nil {
		v := failed(entry.Key, err)
		if v.Problem == notAnswered {
			v.Problem += mayBeDone
		}
		if recorded != nil {
			v.Problem += " This result could not be recorded."
		}
		return p.again(r, form, v.status, v.Problem)
	}
	v := view{status: http.StatusOK, Key: entry.Key, Freed: entry.Action == Forget, Resolved: entry.Action == Resolve}
	v.Journaled = p.once != nil
	if recorded != nil {
		v.status, v.Problem = http.StatusServiceUnavailable, notRecorded
	}
	return v
}

// again returns the page of what the key holds now, with a problem and with what was typed in.
func (p *page) again(r *http.Request, form url.Values, status int, problem string) view {
	v := p.inspect(r, strings.TrimSpace(form.Get("key")))
	v.status, v.Problem = status, problem
	if Action(form.Get("action")) == Forget {
		v.Reason = form.Get("reason")
		return v
	}
	v.Why, v.Status, v.Header, v.Body = form.Get("reason"), form.Get("status"), form.Get("header"), form.Get("body")
	v.Value, v.Failed = form.Get("value"), form.Get("failed")
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
	switch {
	case (value == "") == (failed == ""):
		return said, "Enter the value of the function, or the text of its error."
	case failed != "":
		entry.BodySHA256 = sum(failed)
		return middleware.Failed(failed), ""
	case !json.Valid([]byte(value)):
		return said, "Enter the value as JSON. If the service has once.WithCodec, run onceguard resolve."
	}
	entry.BodySHA256 = sum(value)
	return middleware.Returned([]byte(value)), ""
}

// text returns a field of several lines, whose ends a browser has changed.
func text(form url.Values, name string) string {
	return strings.ReplaceAll(form.Get(name), "\r\n", "\n")
}

func sum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

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
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return said, "Enter each field of the header on its line, as Name: value."
		}
		header.Add(name, strings.TrimSpace(value))
	}
	body := text(form, "body")
	entry.Status, entry.BodySHA256 = status, sum(body)
	return middleware.Responded(status, header, []byte(body)), ""
}

// make changes the key.
func (p *page) make(ctx context.Context, entry Entry, said middleware.Resolution) error {
	if entry.Action == Resolve {
		return p.once.Resolve(ctx, entry.Key, entry.Token, said)
	}
	if p.once != nil {
		seen, err := p.look(ctx, entry.Key)
		switch {
		case err != nil && !errors.Is(err, middleware.ErrUnreadable):
			return err
		case seen.State() == lock.Abandoned && (seen.Run != "" || err != nil): // else it is a lock
			return p.free(ctx, entry, seen)
		case seen.Journal.State != journal.Absent:
			return lock.ErrChanged
		case p.locker.IsNone(): // the key is free
			return nil
		}
	}
	var opts []lock.ForgetOption
	if entry.EvenIfLive {
		opts = append(opts, lock.EvenIfLive())
	}
	return p.locker.Forget(ctx, entry.Key, entry.Token, opts...)
}

// free frees a key whose outcome is unknown, in the journal and in Redis.
func (p *page) free(ctx context.Context, entry Entry, seen middleware.Inspection) error {
	err := p.once.Resolve(ctx, entry.Key, entry.Token, middleware.NothingHappened())
	if err != nil || seen.Redis.State != lock.Abandoned || seen.Redis.Token == entry.Token {
		return err
	}
	// A retry has died before it could release its claim, or the release before this one has swept the row.
	if err := p.locker.Forget(ctx, entry.Key, seen.Redis.Token); err != nil { // not wrapped: the row is changed
		return fmt.Errorf("the journal's row is freed, but not the claim in Redis: %v", err)
	}
	return nil
}
