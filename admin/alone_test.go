package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Without Redis the page shows and changes the journal's rows. A row that a sweep has ended without a response takes one.
func TestServiceWithoutRedis(t *testing.T) {
	t.Parallel()
	const token = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	j := &oneRow{off: true}
	d := &desk{t: t, locker: lock.None("payments-api"), allowed: true}
	defer d.locker.Close(t.Context())
	once := middleware.New(d.locker, keyfunc.Header("Idempotency-Key"), middleware.WithJournal(j))
	d.page = admin.Handler(d.locker, func(*http.Request) bool { return d.allowed },
		func(*http.Request, admin.Entry) error { return nil }, admin.WithMiddleware(once), admin.WithResolve())
	s := &service{desk: d, works: true, handler: once.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
	// The row has the note of a real run, which a resolution must be able to read.
	var note []byte
	j.onBegin = func(r journal.Run) { note = r.Note }
	s.post()
	j.off = false
	key := d.locker.StorageKey("k")
	look := func() answer { return d.send(form("action", "inspect", "key", key)) }

	d.want(look(), 200, "The journal has no such key")
	d.want(d.send(form("action", "forget", "ledger", "yes", "key", key, "token", token, "reason", "r")), 200, "The key is free")

	j.entry = journal.Entry{State: journal.Running, Token: token, Note: note, Age: 90 * time.Second, Left: time.Hour}
	d.want(look(), 200, "The key is held", "its process died before its limit", "<dt>began</dt>", " UTC, 1m30s ago", "cannot be freed from this page")

	j.entry = journal.Entry{State: journal.Unfinished, Token: token, Note: note, Age: time.Hour}
	unfinished := look()
	d.want(unfinished, 200, "The key is abandoned", "UTC, 1h0m0s ago", "unfinished", "2. It happened")
	if strings.Contains(unfinished.text, "<dd>free</dd>") {
		t.Error("the page speaks of Redis")
	}
	if strings.Contains(unfinished.text, "handed to a sweep") {
		t.Error("the page speaks of a sweep that has not begun")
	}
	j.entry.Left = 59 * time.Minute
	d.want(look(), 200, "The key is abandoned", "a sweep is finding out what happened", "<dd>unfinished, and handed to a sweep for 59m0s more</dd>")
	d.want(d.send(form(append(unfinished.fields(), "reason", "not booked")...)), 200, "The key is free")
	if j.entry.State != journal.Absent {
		t.Errorf("the journal has %+v", j.entry)
	}

	j.entry = journal.Entry{State: journal.Done, Token: token, Note: note, Left: time.Hour}
	unanswered := look()
	d.want(unanswered, 200, "The key is settled", "has ended, and its result was not kept", "Store its response")
	if strings.Contains(unanswered.text, "Free the key") {
		t.Error("the page frees what has happened")
	}
	fields := unanswered.resolveForm("reason", "booked", "status", "202", "header", "", "body", "said", "ledger", "yes")
	d.want(d.send(form(fields...)), 200, "It is stored")
	d.want(look(), 200, "The key is settled", "status 202, a body of 4 bytes")
}
