package admin_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

var resolving = []admin.Option{admin.WithResolve()}

func TestResolve(t *testing.T) {
	t.Parallel()
	d := newDesk(t, resolving)
	key := d.stuck(note(record.HTTP, false))
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
		if e := d.trail[len(d.trail)-1]; e.Action != "inspect" || !e.Done {
			t.Errorf("%s: the look-up is not audited: %+v", problem, d.trail)
		}
	}
	d.trail = nil
	d.send(looked, "resolve", said...).want(200, "It is stored")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("{\n\"id\":7}\n")))
	d.wantTrail(admin.Entry{Action: "resolve", Key: key, Status: 202, BodySHA256: sum, Reason: "INC-8: booked"})
	d.stored(key, "{\n\"id\":7}\n", "/payments/7")
	d.send(looked, "resolve", said...).want(409, "does not hold")
	d.look(key).want(200, "The key is settled", "status 202, a body of 10 bytes; completed ").hides(`"id":7`)
}

// Without WithResolve the page names the way, and takes no response.
func TestResolveIsOff(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil, middleware.WithAtMostOnce())
	looked := d.look(d.stuck(note(record.HTTP, false))).
		want(200, "Do not free it. Run <code>onceguard resolve</code>", "I have looked in the ledger: it has not happened.").hides("<textarea")
	d.trail = nil
	d.send(looked, "forget", "action", "resolve", "status", "201").want(400)
	d.wantTrail(admin.Entry{})
	d.send(looked, "forget").want(200, "The next try with it runs.")
}

// What an operator has typed in comes back escaped.
func TestResolveIsSafe(t *testing.T) {
	t.Parallel()
	d := newDesk(t, resolving)
	looked := d.look(d.stuck(note(record.HTTP, false)))
	const evil = `</textarea><script>alert(1)</script>"><script>`
	a := d.send(looked, "resolve", "reason", evil, "status", evil, "header", evil, "body", evil).want(422, "Enter the status", evil).hides("<script")
	if strings.Count(a.text, "</textarea>") != 2 {
		t.Errorf("not escaped: %s", a.text)
	}
}

// oneRow is an intent journal with one row, which belongs to every key.
type oneRow struct {
	journal.Journal
	entry journal.Entry
	onEnd func() // may be nil
}

const rowToken = "8e03978e-40d5-43dd-bc93-6894a57f9324"

func (j *oneRow) Namespace() string { return "payments-api" }

func (j *oneRow) IsIntent() bool { return true }

func (j *oneRow) End(_ context.Context, r journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	if j.onEnd != nil {
		j.onEnd()
	}
	if j.entry = (journal.Entry{State: journal.Done, Token: r.Token, Record: record, Left: keep}); record == nil {
		j.entry = journal.Entry{}
	}
	return j.entry, nil
}

func (j *oneRow) Look(context.Context, string) (journal.Entry, error) { return j.entry, nil }

// put makes the row that of a run, which has died.
func (j *oneRow) put(state journal.State, age, left time.Duration) {
	j.entry = journal.Entry{State: state, Token: rowToken, Note: note(record.HTTP, true), Age: age, Left: left}
}

// The page shows and changes the rows of a journal, with Redis or without. A row that a sweep has ended without a response
// takes one.
func TestJournal(t *testing.T) {
	t.Parallel()
	for _, hasRedis := range []bool{true, false} {
		j := &oneRow{}
		d := newDesk(t, resolving, middleware.WithJournal(j))
		missing, redis := "Neither Redis nor the journal has such a key", "<dt>redis</dt><dd>free</dd>"
		if !hasRedis {
			d = &desk{t: t, locker: lock.None("payments-api")}
			d.open(resolving, middleware.WithJournal(j))
			missing, redis = "The journal has no such key", "<dt>redis</dt><dd>none</dd>"
		}
		key := d.locker.StorageKey("k")
		d.look(key).want(200, missing)
		d.send(answer{}, "forget", "key", key, "token", rowToken).want(200)

		j.put(journal.Running, 90*time.Second, time.Hour)
		d.look(key).want(200, "The key is held", redis, "<dt>began</dt>", " UTC, 1m3", "cannot be freed from this page")
		j.put(journal.Unfinished, time.Hour, 0)
		unfinished := d.look(key).want(200, "The key is abandoned", "<dt>journal</dt>", "2. It happened")
		d.send(unfinished, "forget").want(200, "The key is free. The next try with it runs.")
		if j.entry.State != journal.Absent {
			t.Errorf("the journal has %+v", j.entry)
		}
		j.put(journal.Done, 0, time.Hour)
		unanswered := d.look(key).want(200, "The key is settled", "its result was not kept", "Store its response", "because the journal has its outcome").
			hides("Free the key")
		d.send(answer{}, "forget", "key", key, "token", rowToken).want(409, "does not hold")
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
		key := d.stuck(nil)
		j.put(journal.Unfinished, time.Hour, 0)
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
	for _, said := range [][]string{{"value", `"paid by hand"`}, {"failed", "declined"}} {
		key := d.stuck(note(record.Value, false))
		looked := d.look(key).want(200, "A function ended without an outcome", "2. It happened: store its result", "Store the result").
			hides(`name="status"`, "response")
		for problem, wrong := range map[string][2]string{
			"Enter the value of the function, or the text": {"", ""}, "the text of its error": {"1", "declined"}, "Enter the value as JSON": {"paid by hand", ""},
		} {
			d.send(looked, "resolve", "value", wrong[0], "failed", wrong[1]).want(422, problem, "The key is abandoned", ">\n"+wrong[0]+"</textarea>")
		}
		d.send(looked, "resolve", "status", "201").want(422, "the run is a function's (package once), which leaves a value or an error")
		d.trail = nil
		d.send(looked, "resolve", said...).want(200, "It is stored")
		d.wantTrail(admin.Entry{Action: "resolve", Key: key, Reason: "INC-7", BodySHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(said[1])))})
		d.stored(key, said[1])
	}
}

// fault: the page offers to free a claim, and then always refuses. Expected: it offers what it does, and says why it does
// not do the rest. A claim without a note is a lock's, which no door has to read.
func TestOffersWhatItDoes(t *testing.T) {
	t.Parallel()
	secret := &record.Codec{Keys: record.NewKeyring("", [][]byte{make([]byte, 32)})}
	key := lock.None("payments-api").StorageKey("k")
	for name, test := range map[string]struct {
		note          []byte
		frees, stores bool
		says          string
	}{
		"a lock's":    {nil, true, false, "A run ended without an outcome"},
		"a run's":     {note(record.HTTP, false), true, true, "A request ended without an outcome; retries get 409 outcome-unknown."},
		"encrypted":   {secret.EncodeNote(nil, key, record.Note{}), false, false, "<dt>stored</dt><dd>cannot be read: onceguard: what is stored is unreadable: encrypted"},
		"a journal's": {note(record.HTTP, true), false, false, "unless its journal, which cannot be asked here, has its outcome"},
	} {
		d := newDesk(t, resolving)
		key := d.stuck(test.note)
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
