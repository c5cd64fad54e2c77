package admin_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

var resolving = []admin.Option{admin.WithResolve()}

func TestResolve(t *testing.T) {
	t.Parallel()
	d := newDesk(t, resolving, middleware.WithAtMostOnce())
	key := d.strand()
	looked := d.look(key).want(200, "The key is abandoned", "1. Look in the ledger", "2. It happened", "Store the response", "3. It did not happen", "Free the key")
	said := []string{
		"reason", "INC-8: booked", "status", "202", "header", "Content-Type: application/json\r\nLocation: /payments/7", "body", "{\r\n\"id\":7}\r\n",
	}
	for problem, change := range map[string][]string{
		"Look in the ledger first": {"ledger", ""}, "Say why": {"reason", " "}, "Enter the status": {"status", "many"},
		"no final status": {"status", "100"}, "as Name: value": {"header", "none"}, "no valid name": {"header", "a b: c"},
		"Set-Cookie": {"header", "Set-Cookie: a=b"}, "Look at the key first": {"token", ""},
	} {
		a := d.send(looked, "resolve", append(said, change...)...).want(422, problem, "The key is abandoned", "\"id\":7}")
		if _, free, _ := strings.Cut(a.text, `value="forget"`); strings.Contains(free, "INC-8") {
			t.Errorf("%s: the reason to resolve is in the form that frees", problem)
		}
		if e := d.trail[len(d.trail)-1]; e.Action != admin.Inspect || !e.Done {
			t.Errorf("%s: the look-up is not audited: %+v", problem, d.trail)
		}
	}
	d.trail = nil
	d.send(looked, "resolve", said...).want(200, "It is stored")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("{\n\"id\":7}\n")))
	d.wantTrail(admin.Entry{Action: admin.Resolve, Key: key, Status: 202, BodySHA256: sum, Reason: "INC-8: booked"})
	w := d.post()
	if w.Code != 202 || w.Body.String() != "{\n\"id\":7}\n" || w.Header().Get("Location") != "/payments/7" || d.runs != 1 {
		t.Errorf("%d %q, %d runs", w.Code, w.Body, d.runs)
	}
	d.send(looked, "resolve", said...).want(409, "does not hold")
	d.look(key).want(200, "The key is settled", "status 202, a body of 10 bytes; completed ").hides(`"id":7`)
}

// Without WithResolve the page names the way, and takes no response.
func TestResolveIsOff(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil, middleware.WithAtMostOnce())
	looked := d.look(d.strand()).
		want(200, "Do not free it. Run <code>onceguard resolve</code>", "I have looked in the ledger: it has not happened.").hides("<textarea")
	d.trail = nil
	d.send(looked, "forget", "action", "resolve", "status", "201").want(400)
	d.wantTrail(admin.Entry{})
	d.send(looked, "forget").want(200, "The next try with it runs.")
	if w := d.post(); w.Code != http.StatusCreated || d.runs != 2 {
		t.Errorf("%d, %d runs", w.Code, d.runs)
	}
	d.look(d.locker.StorageKey("k")).want(200, "status 201").hides("lassified")
}

// What an operator has typed in comes back escaped, and another site cannot send the form.
func TestResolveIsSafe(t *testing.T) {
	t.Parallel()
	d := newDesk(t, resolving, middleware.WithAtMostOnce())
	looked := d.look(d.strand())
	const evil = `</textarea><script>alert(1)</script>"><script>`
	a := d.send(looked, "resolve", "reason", evil, "status", evil, "header", evil, "body", evil).want(422, "Enter the status", evil).hides("<script")
	if strings.Count(a.text, "</textarea>") != 2 {
		t.Errorf("not escaped: %s", a.text)
	}
	checkHeader(t, "resolve", a)
	d.trail = nil
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := form(append(looked.fields("resolve"), "status", "201")...)
		r.Header.Set(name, value)
		d.do(r).want(403)
	}
	d.wantTrail(admin.Entry{})
	d.refuse = func(admin.Entry) error { return errors.New("full") }
	d.send(looked, "resolve", "status", "201").want(503, "It was not done")
	if w := d.post(); w.Code != http.StatusConflict {
		t.Errorf("it was resolved: %d", w.Code)
	}
	d.do(form("action", "inspect", "key", "k", "body", strings.Repeat("b", 1<<20))).want(413)
}

// oneRow is an intent journal with one row, which belongs to every key.
type oneRow struct {
	entry journal.Entry
	off   bool   // it has no row
	note  []byte // of the last run
	onEnd func() // may be nil
}

const rowToken = "8e03978e-40d5-43dd-bc93-6894a57f9324"

func (j *oneRow) Namespace() string { return "payments-api" }

func (j *oneRow) IsIntent() bool { return true }

func (j *oneRow) Begin(_ context.Context, r journal.Run) (journal.Entry, error) {
	j.note = r.Note
	return journal.Entry{}, nil
}

func (j *oneRow) End(_ context.Context, r journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	done := journal.Entry{State: journal.Done, Token: r.Token, Record: record, Left: keep}
	if j.off {
		return done, nil
	}
	if j.onEnd != nil {
		j.onEnd()
	}
	if j.entry = done; record == nil {
		j.entry = journal.Entry{}
	}
	return j.entry, nil
}

func (j *oneRow) Look(context.Context, string) (journal.Entry, error) {
	if j.off {
		return journal.Entry{}, nil
	}
	return j.entry, nil
}

// put makes the row that of a real run, which has died: a resolution must be able to read its note.
func (j *oneRow) put(d *desk, state journal.State, age, left time.Duration) {
	j.off, d.works = true, true
	d.post()
	if d.backend != nil {
		d.backend.FlushAll(d.t)
	}
	j.off, j.entry = false, journal.Entry{State: state, Token: rowToken, Note: j.note, Age: age, Left: left}
}

// The page shows and changes the rows of a journal, with Redis or without. A row that a sweep has ended without a response
// takes one.
func TestJournal(t *testing.T) {
	t.Parallel()
	for _, hasRedis := range []bool{true, false} {
		j := &oneRow{off: true}
		d := newDesk(t, resolving, middleware.WithJournal(j))
		missing, redis := "neither Redis nor the journal has such a key", "<dt>redis</dt><dd>free</dd>"
		if !hasRedis {
			d = &desk{t: t, locker: lock.None("payments-api")}
			d.open(resolving, middleware.WithJournal(j))
			missing, redis = "the journal has no such key", "<dt>redis</dt><dd>none</dd>"
		}
		key := d.locker.StorageKey("k")
		d.look(key).want(200, missing[1:])
		d.send(answer{}, "forget", "key", key, "token", rowToken).want(200)

		j.put(d, journal.Running, 90*time.Second, time.Hour)
		d.look(key).want(200, "The key is held", "its process died before its limit", redis, "<dt>began</dt>", " UTC, 1m30s ago", "cannot be freed from this page")
		j.put(d, journal.Unfinished, time.Hour, 59*time.Minute)
		d.look(key).want(200, "a sweep is finding out what happened", "<dd>unfinished, and handed to a sweep for 59m0s more</dd>")
		j.put(d, journal.Unfinished, time.Hour, 0)
		unfinished := d.look(key).want(200, "The key is abandoned", "UTC, 1h0m0s ago", "<dt>journal</dt>", "2. It happened",
			"unfinished. No retry runs until it is resolved, freed or swept").hides("handed to a sweep")
		d.send(unfinished, "forget").want(200, "The key is free. The next try with it runs.")
		if j.entry.State != journal.Absent {
			t.Errorf("the journal has %+v", j.entry)
		}
		j.put(d, journal.Done, 0, time.Hour)
		unanswered := d.look(key).want(200, "The key is settled", "its result was not kept", "Store its response", "because the journal has its outcome").
			hides("Free the key")
		d.send(answer{}, "forget", "key", key, "token", rowToken).want(409, "does not hold")
		if j.entry.State != journal.Done {
			t.Errorf("the journal has %+v", j.entry)
		}
		d.send(unanswered, "resolve", "status", "202", "body", "said").want(200, "It is stored")
		d.look(key).want(200, "The key is settled", "status 202, a body of 4 bytes")
	}
}

// fault: a retry has died and left a claim beside the row. While the page frees both, another operator frees the claim,
// and the next run takes the key. Expected: the page does not say that nothing was changed, because the row is freed.
func TestFreeBesideAnother(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		j := &oneRow{}
		d := newDesk(t, nil, middleware.WithJournal(j))
		j.put(d, journal.Unfinished, time.Hour, 0)
		key := d.stuck(nil)
		j.onEnd = func() {
			if taken {
				d.stuck(nil)
			}
		}
		freed := d.send(d.look(key), "forget")
		if taken {
			freed.want(503, "What was to be done may be done or not")
		} else {
			freed.want(200, "The key is free")
		}
		if j.entry.State != journal.Absent {
			t.Errorf("the journal has %+v", j.entry)
		}
		d.holds(key, taken)
	}
}

// fault: the page offers to store the response of a function's run, refuses it, and blames the encryption keys. Expected: it
// takes the function's value or its error, and says what it is.
func TestFunctions(t *testing.T) {
	t.Parallel()
	d := newDesk(t, resolving)
	guard := once.New(d.locker, once.WithAtMostOnce())
	key := ""
	charge := func(err error) (string, error) {
		paid, _, err := once.Do(t.Context(), guard, once.Key{Operation: "charge", Scope: "ann", ID: "1"}, func(ctx context.Context) (string, error) {
			key = once.FromContext(ctx).Key()
			return "paid", err
		})
		return paid, err
	}
	strand := func() answer {
		d.backend.FlushAll(t)
		if _, err := charge(once.Unknown(context.DeadlineExceeded)); err == nil {
			t.Error("no error")
		}
		d.backend.Elapse(t, 11*time.Second)
		return d.look(key).want(200, "A function ended without an outcome; retries get once.ErrOutcomeUnknown", "2. It happened: store its result", "Store the result").
			hides(`name="status"`, "response")
	}
	looked := strand()
	say := func(value, failed string) answer {
		return d.send(looked, "resolve", "value", value, "failed", failed)
	}
	for problem, said := range map[string][2]string{
		"Enter the value of the function, or the text": {"", ""}, "the text of its error": {"1", "declined"}, "Enter the value as JSON": {"paid by hand", ""},
	} {
		say(said[0], said[1]).want(422, problem, "The key is abandoned", ">\n"+said[0]+"</textarea>")
	}
	d.send(looked, "resolve", "status", "201").want(422, "the run is a function's (package once), which leaves a value or an error")
	d.trail = nil
	say(`"paid by hand"`, "").want(200, "It is stored")
	d.wantTrail(admin.Entry{Action: admin.Resolve, Key: key, Reason: "INC-7", BodySHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(`"paid by hand"`)))})
	if paid, err := charge(nil); paid != "paid by hand" || err != nil {
		t.Errorf("%q, %v", paid, err)
	}
	looked = strand()
	say("", "declined").want(200, "It is stored")
	if _, err := charge(nil); err == nil || err.Error() != "declined" {
		t.Error(err)
	}
	d.send(strand(), "forget").want(200, "The key is free")
	if paid, err := charge(nil); paid != "paid" || err != nil {
		t.Errorf("%q, %v", paid, err)
	}
}

// fault: the page offers to free a claim, and then always refuses. Expected: it offers what it does, and says why it does
// not do the rest. A claim without a note is a lock's, which no door has to read.
func TestOffersWhatItDoes(t *testing.T) {
	t.Parallel()
	plain, secret := new(record.Codec), &record.Codec{Keys: record.NewKeyring("", [][]byte{make([]byte, 32)})}
	for name, test := range map[string]struct {
		note          func(key string) []byte
		frees, stores bool
		says          string
	}{
		"a lock's": {func(string) []byte { return nil }, true, false, "A run ended without an outcome"},
		"a run's": {func(key string) []byte { return plain.EncodeNote(nil, key, record.Note{}) }, true, true,
			"A request ended without an outcome; retries get 409 outcome-unknown."},
		"encrypted": {func(key string) []byte { return secret.EncodeNote(nil, key, record.Note{}) }, false, false,
			"<dt>stored</dt><dd>cannot be read: onceguard: what is stored is unreadable: encrypted"},
		"a journal's": {func(key string) []byte { return plain.EncodeNote(nil, key, record.Note{Journaled: true}) }, false, false,
			"unless its journal, which cannot be asked here, has its outcome"},
	} {
		d := newDesk(t, resolving)
		key := d.stuck(test.note(d.locker.StorageKey("k")))
		looked := d.look(key).want(200, "The key is abandoned", test.says)
		if e := d.trail[1]; errors.Is(e.Err, middleware.ErrUnreadable) != strings.Contains(test.says, "unreadable") {
			t.Errorf("%s: entry %+v", name, e)
		}
		frees, stores := strings.Contains(looked.text, "Free the key"), strings.Contains(looked.text, "Store the ")
		if frees != test.frees || stores != test.stores || strings.Contains(looked.text, "cannot be freed from this page") == frees {
			t.Errorf("%s: the page offers to free it: %v, to store an outcome: %v: %s", name, frees, stores, looked.text)
		}
		info, err := d.locker.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if free := d.send(answer{}, "forget", "key", key, "token", info.Token); test.frees != (free.status == 200) {
			t.Errorf("%s: %d", name, free.status)
		}
		d.holds(key, !test.frees)
	}
}
