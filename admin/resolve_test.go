package admin_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

// newService returns a desk whose page has the Middleware of a service, and that service.
func newService(t *testing.T, opts []middleware.Option, pageOpts ...admin.Option) (*desk, *service) {
	t.Helper()
	d := newDesk(t)
	s := &service{desk: d}
	once := middleware.New(d.locker, keyfunc.Header("Idempotency-Key"), opts...)
	s.handler = once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs++
		if !s.works {
			middleware.FromContext(r.Context()).Unknown()
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "classified response")
	}))
	d.page = admin.Handler(d.locker, func(*http.Request) bool { return d.allowed }, func(_ *http.Request, e admin.Entry) error {
		d.trail = append(d.trail, e)
		if d.refuse != nil {
			return d.refuse(e)
		}
		return nil
	}, append(pageOpts, admin.WithMiddleware(once))...)
	return d, s
}

type service struct {
	desk    *desk
	handler http.Handler
	works   bool // or else no run knows its outcome
	runs    int
	key     string // "k" if empty
}

func (s *service) post() *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("pay"))
	r.Header.Set("Idempotency-Key", cmp.Or(s.key, "k"))
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// strand leaves a run without an outcome, and returns its storage key.
func (s *service) strand() string {
	s.post()
	s.works = true
	s.desk.backend.Elapse(s.desk.t, 11*time.Second)
	return s.desk.locker.StorageKey("k")
}

// resolveForm returns the fields of the form that stores a response.
func (a answer) resolveForm(fields ...string) []string {
	_, f, _ := strings.Cut(a.text, `value="resolve">`)
	f, _, _ = strings.Cut(f, `</form>`)
	hidden := answer{text: `value="forget">` + f}.fields()
	return append(hidden, append([]string{"action", "resolve"}, fields...)...)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	d, s := newService(t, []middleware.Option{middleware.WithAtMostOnce()}, admin.WithResolve())
	key := s.strand()
	looked := d.send(form("action", "inspect", "key", key))
	d.want(looked, 200, "The key is abandoned", "1. Look in the ledger", "2. It happened", "Store the response", "3. It did not happen", "Free the key")
	const said = "{\r\n\"id\":7}\r\n"
	fields := looked.resolveForm("reason", "INC-7: booked", "status", "202", "header", "Content-Type: application/json\r\nLocation: /payments/7", "body", said)
	for problem, change := range map[string][]string{
		"Look in the ledger first": {"ledger", ""}, "Say why": {"reason", " "}, "Enter the status": {"status", "many"},
		"no final status": {"status", "100"}, "as Name: value": {"header", "none"}, "no valid name": {"header", "a b: c"}, "Set-Cookie": {"header", "Set-Cookie: a=b"},
		"Look at the key first": {"token", ""},
	} {
		d.trail = nil
		a := d.send(form(append(slices.Clone(fields), change...)...))
		d.want(a, 422, problem, "The key is abandoned", "\"id\":7}")
		if _, free, _ := strings.Cut(a.text, `value="forget"`); strings.Contains(free, "INC-7") {
			t.Errorf("%s: the reason to resolve is in the form that frees", problem)
		}
		if e := d.trail[len(d.trail)-1]; e.Action != admin.Inspect || !e.Done {
			t.Errorf("%s: the look-up is not audited: %+v", problem, d.trail)
		}
	}
	d.trail = nil
	d.want(d.send(form(fields...)), 200, "It is stored")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("{\n\"id\":7}\n")))
	for i, e := range d.trail {
		if e.Action != admin.Resolve || e.Key != key || e.Status != 202 || e.BodySHA256 != sum || e.Reason != "INC-7: booked" || e.Done != (i == 1) || e.Err != nil {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	w := s.post()
	if w.Code != 202 || w.Body.String() != "{\n\"id\":7}\n" || w.Header().Get("Location") != "/payments/7" || s.runs != 1 {
		t.Errorf("%d %q, %d runs", w.Code, w.Body, s.runs)
	}
	d.want(d.send(form(fields...)), 409, "has changed since you looked")
	shown := d.send(form("action", "inspect", "key", key))
	d.want(shown, 200, "The key is settled", "status 202, a body of 10 bytes; completed ")
	if strings.Contains(shown.text, "id") && strings.Contains(shown.text, `"id":7`) {
		t.Error("the page shows the body")
	}
}

// Without WithResolve the page names the way, and takes no response.
func TestResolveIsOff(t *testing.T) {
	t.Parallel()
	d, s := newService(t, []middleware.Option{middleware.WithAtMostOnce()})
	key := s.strand()
	looked := d.send(form("action", "inspect", "key", key))
	d.want(looked, 200, "Do not free it. Run <code>onceguard resolve</code>", "I have looked in the ledger: it has not happened.")
	if strings.Contains(looked.text, "<textarea") {
		t.Error("the page has the form")
	}
	fields := append(looked.fields(), "action", "resolve", "status", "201", "reason", "r")
	d.trail = nil
	d.want(d.send(form(fields...)), 400)
	if len(d.trail) > 0 {
		t.Errorf("trail %+v", d.trail)
	}
	d.want(d.send(form(append(fields, "action", "forget")...)), 200, "The next try with it runs.")
	if w := s.post(); w.Code != http.StatusCreated || s.runs != 2 {
		t.Errorf("%d, %d runs", w.Code, s.runs)
	}
}

// What an operator has typed in comes back escaped, and another site cannot send the form.
func TestResolveIsSafe(t *testing.T) {
	t.Parallel()
	d, s := newService(t, []middleware.Option{middleware.WithAtMostOnce()}, admin.WithResolve())
	key := s.strand()
	const evil = `</textarea><script>alert(1)</script>"><script>`
	fields := d.send(form("action", "inspect", "key", key)).resolveForm("reason", evil, "status", evil, "header", evil, "body", evil)
	a := d.send(form(fields...))
	d.want(a, 422, "Enter the status", evil)
	if strings.Contains(a.text, "<script") || strings.Count(a.text, "</textarea>") != 2 {
		t.Errorf("not escaped: %s", a.text)
	}
	checkHeader(t, "resolve", a)
	d.trail = nil
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := form(append(fields, "status", "201", "header", "")...)
		r.Header.Set(name, value)
		d.want(d.send(r), 403)
	}
	d.refuse = func(admin.Entry) error { return errors.New("full") }
	d.want(d.send(form(append(fields, "status", "201", "header", "")...)), 503, "It was not done")
	if w := s.post(); w.Code != http.StatusConflict {
		t.Errorf("it was resolved: %d", w.Code)
	}
	if len(d.trail) != 1 {
		t.Errorf("trail %+v", d.trail)
	}
	d.want(d.send(form("action", "inspect", "key", key, "body", strings.Repeat("b", 1<<20))), 413)
}

// fault: Redis has lost the claim of a run that died. Expected: the page shows the journal's row, and frees it.
func TestFreeInAJournal(t *testing.T) {
	t.Parallel()
	j := &oneRow{entry: journal.Entry{State: journal.Unfinished, Token: "8e03978e-40d5-43dd-bc93-6894a57f9324"}}
	d, s := newService(t, []middleware.Option{middleware.WithJournal(j)})
	s.works = true
	j.off = true
	key := d.locker.StorageKey("k")
	// The row has the note of a real claim, which a resolution must be able to read.
	j.onBegin = func(r journal.Run) { j.entry.Note = r.Note }
	s.post()
	d.backend.FlushAll(t)
	j.off = false
	looked := d.send(form("action", "inspect", "key", key))
	d.want(looked, 200, "The key is abandoned", "in Redis", "free", "in the journal", "unfinished. No retry runs until it is resolved, freed or swept")
	d.want(d.send(form(append(looked.fields(), "reason", "not booked")...)), 200, "The key is free. The next try with it runs.")
	if j.entry.State != journal.Absent {
		t.Errorf("the journal has %+v", j.entry)
	}
	j.entry = journal.Entry{State: journal.Done, Token: "8e03978e-40d5-43dd-bc93-6894a57f9324", Left: time.Hour}
	done := d.send(form("action", "inspect", "key", key))
	d.want(done, 200, "The key is settled", "The journal has its outcome. It cannot be freed from this page")
	d.want(d.send(form("action", "forget", "ledger", "yes", "key", key, "token", j.entry.Token, "reason", "r")), 409, "has changed")
	if j.entry.State != journal.Done {
		t.Errorf("the journal has %+v", j.entry)
	}
}

// fault: a run under WithAtMostOnce has died, and its journal has no row of it. Expected: the page says that a retry runs, as
// it does, and nothing else.
func TestNoRowInTheJournal(t *testing.T) {
	t.Parallel()
	d, s := newService(t, []middleware.Option{middleware.WithAtMostOnce(), middleware.WithJournal(&oneRow{off: true, onBegin: func(journal.Run) {}})})
	key := s.strand()
	looked := d.send(form("action", "inspect", "key", key))
	d.want(looked, 200, "The key is abandoned", "the journal has no row of it", "A retry runs.")
	if strings.Contains(strings.ToLower(looked.text), "no retry") {
		t.Errorf("it contradicts itself: %s", looked.text)
	}
	if w := s.post(); w.Code != http.StatusCreated || s.runs != 2 {
		t.Errorf("the retry: %d, %d runs", w.Code, s.runs)
	}
}

// fault: a retry has died and left a claim beside the row. While the page frees both, another operator frees the claim,
// and the next run takes the key. Expected: the page does not say that nothing was changed, because the row is freed.
func TestFreeBesideAnother(t *testing.T) {
	t.Parallel()
	j := &oneRow{entry: journal.Entry{State: journal.Unfinished, Token: "8e03978e-40d5-43dd-bc93-6894a57f9324"}, off: true}
	d, s := newService(t, []middleware.Option{middleware.WithJournal(j)})
	s.works = true
	j.onBegin = func(r journal.Run) { j.entry.Note = r.Note }
	s.post()
	d.backend.FlushAll(t)
	key := d.stuck("k")
	j.off = false
	j.onEnd = func() {
		d.backend.FlushAll(t)
		d.stuck("k")
	}
	looked := d.send(form("action", "inspect", "key", key))
	freed := d.send(form(append(looked.fields(), "reason", "not booked")...))
	d.want(freed, 503, "What was to be done may be done or not")
	if j.entry.State != journal.Absent {
		t.Errorf("the journal has %+v", j.entry)
	}
	d.holds(key, true)
}

// oneRow is a journal with one row, which belongs to every key.
type oneRow struct {
	entry   journal.Entry
	off     bool // it has no row
	onBegin func(journal.Run)
	onEnd   func() // may be nil
}

func (j *oneRow) Namespace() string { return "payments-api" }

func (j *oneRow) IsIntent() bool { return true }

func (j *oneRow) Begin(_ context.Context, r journal.Run) (journal.Entry, error) {
	j.onBegin(r)
	return journal.Entry{}, nil
}

func (j *oneRow) End(_ context.Context, r journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	if j.off {
		return journal.Entry{State: journal.Done, Token: r.Token, Record: record, Left: keep}, nil
	}
	if j.onEnd != nil {
		j.onEnd()
	}
	j.entry = journal.Entry{}
	if record != nil {
		j.entry = journal.Entry{State: journal.Done, Token: r.Token, Record: record, Left: keep}
	}
	return j.entry, nil
}

func (j *oneRow) Look(context.Context, string) (journal.Entry, error) {
	if j.off {
		return journal.Entry{}, nil
	}
	return j.entry, nil
}

// The keys of WithEncryption differ: the page shows the state, and says why it does not show the response.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	d, s := newService(t, nil)
	other := middleware.New(d.locker, keyfunc.Header("Idempotency-Key"), middleware.WithEncryption([]byte(strings.Repeat("k", 32))))
	s.handler = other.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	s.post()
	d.want(d.send(form("action", "inspect", "key", d.locker.StorageKey("k"))), 200, "The key is settled", "<dt>is stored</dt><dd>cannot be read: ", "encrypted")
	if e := d.trail[len(d.trail)-1]; !errors.Is(e.Err, middleware.ErrUnreadable) {
		t.Errorf("entry %+v", e)
	}
}

// fault: the page offers to store the response of a function's run, refuses it, and blames the encryption keys. Expected: it
// takes the function's value or its error, and says what it is.
func TestFunctions(t *testing.T) {
	t.Parallel()
	d, _ := newService(t, nil, admin.WithResolve())
	guard := once.New(d.locker, once.WithAtMostOnce())
	key, runs := "", 0
	charge := func(err error) (string, error) {
		paid, _, err := once.Do(t.Context(), guard, once.Key{Operation: "charge", Scope: "ann", ID: "1"},
			func(ctx context.Context) (string, error) {
				runs++
				key = once.FromContext(ctx).Key()
				return "paid", err
			})
		return paid, err
	}
	strand := func() answer {
		if _, err := charge(once.Unknown(context.DeadlineExceeded)); err == nil {
			t.Error("no error")
		}
		d.backend.Elapse(t, 11*time.Second)
		looked := d.send(form("action", "inspect", "key", key))
		d.want(looked, 200, "A function ended without an outcome; retries get once.ErrOutcomeUnknown", "2. It happened: store its result", "Store the result")
		if strings.Contains(looked.text, `name="status"`) || strings.Contains(looked.text, "response") {
			t.Errorf("the page speaks of a response: %s", looked.text)
		}
		return looked
	}
	looked := strand()
	say := func(value, failed string) answer {
		return d.send(form(looked.resolveForm("reason", "INC-7", "value", value, "failed", failed)...))
	}
	for problem, said := range map[string][2]string{
		"Enter the value of the function, or the text": {"", ""}, "the text of its error": {"1", "declined"},
		"Enter the value as JSON": {"paid by hand", ""}, "longer than 1 MiB": {"", strings.Repeat("x", 1<<20+1)},
	} {
		a := say(said[0], said[1])
		if strings.HasPrefix(problem, "longer") {
			d.want(a, 413)
			continue
		}
		d.want(a, 422, problem, "The key is abandoned", ">\n"+said[0]+"</textarea>")
	}
	d.want(d.send(form(looked.resolveForm("reason", "INC-7", "status", "201")...)), 422, "the run is a function's (package once), which leaves a value or an error")
	d.trail = nil
	d.want(say("\"paid by\r\n hand\"", ""), 422, "as JSON")
	d.want(say("\"paid by hand\"", ""), 200, "It is stored")
	if e := d.trail[len(d.trail)-1]; e.Action != admin.Resolve || e.Status != 0 || e.BodySHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(`"paid by hand"`))) {
		t.Errorf("entry %+v", e)
	}
	if paid, err := charge(nil); paid != "paid by hand" || err != nil || runs != 1 {
		t.Errorf("%q, %v, %d runs", paid, err, runs)
	}
	settled := d.send(form("action", "inspect", "key", key))
	d.want(settled, 200, "The key is settled", "Retries get the stored value or error", "of a function")
	d.want(d.send(form(append(settled.fields(), "reason", "wrong")...)), 200, "The key is free")

	looked = strand()
	d.want(say("", "declined"), 200, "It is stored")
	if _, err := charge(nil); err == nil || err.Error() != "declined" || runs != 2 {
		t.Errorf("%v, %d runs", err, runs)
	}
	d.want(d.send(form(append(d.send(form("action", "inspect", "key", key)).fields(), "reason", "wrong")...)), 200, "The key is free")

	d.want(d.send(form(append(strand().fields(), "reason", "not booked")...)), 200, "The key is free")
	if paid, err := charge(nil); paid != "paid" || err != nil || runs != 4 {
		t.Errorf("%q, %v, %d runs", paid, err, runs)
	}
}

// fault: the page offers to free a claim, and then always refuses. Expected: it offers what it does, and says why it does
// not do the rest. A claim without a note is a lock's, which no door has to read.
func TestOffersWhatItDoes(t *testing.T) {
	t.Parallel()
	codec := func(keys ...[]byte) *record.Codec {
		if keys == nil {
			return new(record.Codec)
		}
		return &record.Codec{Keys: record.NewKeyring("", keys)}
	}
	for name, test := range map[string]struct {
		note   func(key string) []byte
		offers bool
		says   string
	}{
		"a lock's":    {func(string) []byte { return nil }, true, "A run ended without an outcome"},
		"a run's":     {func(key string) []byte { return codec().EncodeNote(nil, key, record.Note{}) }, true, "A request ended without an outcome; retries get 409 outcome-unknown."},
		"encrypted":   {func(key string) []byte { return codec(make([]byte, 32)).EncodeNote(nil, key, record.Note{}) }, false, "cannot be read: onceguard: what is stored is unreadable: encrypted"},
		"a journal's": {func(key string) []byte { return codec().EncodeNote(nil, key, record.Note{Journaled: true}) }, false, "unless its journal, which cannot be asked here, has its outcome"},
	} {
		d, _ := newService(t, nil, admin.WithResolve())
		claim, err := d.locker.Claim(t.Context(), "k", test.note(d.locker.StorageKey("k")), 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claim.Lease.Abandon()
		d.backend.Elapse(t, 11*time.Second)
		looked := d.send(form("action", "inspect", "key", claim.Key))
		d.want(looked, 200, "The key is abandoned", test.says)
		if got := strings.Contains(looked.text, "Free the key"); got != test.offers || strings.Contains(looked.text, "cannot be freed from this page") == got {
			t.Errorf("%s: the page offers to free it: %v: %s", name, got, looked.text)
		}
		if store := strings.Contains(looked.text, "Store the "); store != (name == "a run's") {
			t.Errorf("%s: the page offers to store an outcome: %v", name, store)
		}
		free := d.send(form("action", "forget", "key", claim.Key, "token", claim.Lease.Token(), "reason", "r", "ledger", "yes"))
		if test.offers != (free.status == 200) {
			t.Errorf("%s: %d", name, free.status)
		}
		d.holds(claim.Key, !test.offers)
	}
}
