package admin_test

import (
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// desk is a page, and what an operator does there.
type desk struct {
	t       *testing.T
	backend redistest.Backend
	locker  *lock.Locker
	page    http.Handler
	trail   []admin.Entry
	refuse  func(admin.Entry) error // what audit returns
	allowed bool
}

// newDesk returns a desk with Redis, whose page knows the service's Middleware only if there are options of either.
func newDesk(t *testing.T, page []admin.Option, service ...middleware.Option) *desk {
	t.Helper()
	d := &desk{t: t, backend: redistest.Mini(t)}
	d.locker = lock.New(d.backend.Client(t), "payments-api", lock.WithOpTimeout(30*time.Second))
	t.Cleanup(func() { _ = d.locker.Close(context.Background()) })
	d.open(page, service...)
	return d
}

// open makes the page.
func (d *desk) open(page []admin.Option, service ...middleware.Option) {
	d.allowed = true
	if page != nil || service != nil {
		once := middleware.New(d.locker, keyfunc.Header("Idempotency-Key"), service...)
		page = append(slices.Clip(page), admin.WithMiddleware(once))
	}
	d.page = admin.Handler(d.locker, func(*http.Request) bool { return d.allowed }, func(_ *http.Request, e admin.Entry) error {
		d.trail = append(d.trail, e)
		if d.refuse != nil {
			return d.refuse(e)
		}
		return nil
	}, page...)
}

// stuck leaves an abandoned claim with a note and nothing else, and returns its storage key.
func (d *desk) stuck(note []byte) string {
	d.t.Helper()
	d.backend.FlushAll(d.t)
	claim, err := d.locker.Claim(d.t.Context(), "k", note, 24*time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	claim.Lease.Abandon()
	d.backend.Elapse(d.t, 11*time.Second)
	return claim.Key
}

// note returns the note of a run.
func note(door record.Door, journaled bool) []byte {
	return (&record.Codec{Door: door}).EncodeNote(nil, "", record.Note{Journaled: journaled})
}

// stored checks that the key has a value with these texts.
func (d *desk) stored(key string, texts ...string) {
	d.t.Helper()
	raw, _ := d.backend.Raw(d.t, key)
	for _, text := range texts {
		if !strings.Contains(raw, text) {
			d.t.Errorf("no %q in %q", text, raw)
		}
	}
}

// answer is a page that was shown.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	text   string
}

func (d *desk) do(r *http.Request) answer {
	d.t.Helper()
	w := httptest.NewRecorder()
	d.page.ServeHTTP(w, r)
	return answer{d.t, w.Code, w.Result().Header, w.Body.String()}
}

func form(fields ...string) *http.Request {
	values := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		values.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequest(http.MethodPost, "https://ops.example/keys", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// look looks at a key.
func (d *desk) look(key string) answer {
	d.t.Helper()
	return d.do(form("action", "inspect", "key", key))
}

// send sends the form with this action of a page, filled in with more fields.
func (d *desk) send(shown answer, action string, more ...string) answer {
	d.t.Helper()
	return d.do(form(append(shown.fields(action), more...)...))
}

// fields returns the hidden fields of the form with this action, as an operator sends them.
func (a answer) fields(action string) []string {
	_, f, _ := strings.Cut(a.text, `value="`+action+`">`)
	f, _, _ = strings.Cut(f, "</form>")
	fields := []string{"action", action, "ledger", "yes", "reason", "INC-7"}
	for _, m := range regexp.MustCompile(`type="hidden" name="(\w+)" value="([^"]*)"`).FindAllStringSubmatch(f, -1) {
		fields = append(fields, m[1], html.UnescapeString(m[2]))
	}
	return fields
}

// want checks the status, and that the page has each of the texts.
func (a answer) want(status int, texts ...string) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("status %d, want %d: %s", a.status, status, a.text)
	}
	for _, text := range texts {
		if !strings.Contains(html.UnescapeString(a.text), text) {
			a.t.Errorf("%q is not in %s", text, a.text)
		}
	}
	return a
}

// hides checks that the page has none of the texts.
func (a answer) hides(texts ...string) answer {
	a.t.Helper()
	for _, text := range texts {
		if strings.Contains(a.text, text) {
			a.t.Errorf("%q is in %s", text, a.text)
		}
	}
	return a
}

// holds checks whether the key is still in Redis.
func (d *desk) holds(key string, want bool) {
	d.t.Helper()
	if _, ok := d.backend.Raw(d.t, key); ok != want {
		d.t.Errorf("%s is in Redis: %v, want %v", key, ok, want)
	}
}

// wantTrail checks that the trail has an action before and after it was done, and no more, and clears it.
func (d *desk) wantTrail(want admin.Entry) {
	d.t.Helper()
	for i, e := range d.trail {
		if want.Done, want.Token = i == 1, e.Token; len(d.trail) != 2 || e != want || (e.Token == "") != (e.Action == "inspect") {
			d.t.Errorf("trail %+v, want %+v", d.trail, want)
		}
	}
	d.trail = nil
}
