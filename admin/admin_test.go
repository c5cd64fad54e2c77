package admin_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// desk is a page and what an operator does there.
type desk struct {
	t       *testing.T
	backend redistest.Backend
	locker  *lock.Locker
	page    http.Handler
	trail   []admin.Entry
	refuse  func(admin.Entry) error // what audit returns
	allowed bool
}

func newDesk(t *testing.T, opts ...admin.Option) *desk {
	t.Helper()
	d := &desk{t: t, backend: redistest.Mini(t), allowed: true}
	d.locker = lock.New(d.backend.Client(t), "payments-api", lock.WithOpTimeout(20*time.Second))
	t.Cleanup(func() { _ = d.locker.Close(context.Background()) })
	d.page = admin.Handler(d.locker, func(*http.Request) bool { return d.allowed }, func(r *http.Request, e admin.Entry) error {
		d.trail = append(d.trail, e)
		if d.refuse != nil {
			return d.refuse(e)
		}
		return nil
	}, opts...)
	return d
}

// stuck leaves an abandoned claim, and returns its storage key.
func (d *desk) stuck(key string) string {
	d.t.Helper()
	claim, err := d.locker.Claim(d.t.Context(), key, []byte("classified note"), 24*time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	claim.Lease.Abandon()
	d.backend.Elapse(d.t, 11*time.Second)
	return claim.Key
}

// answer is a page that was shown.
type answer struct {
	status int
	header http.Header
	text   string
}

func (d *desk) send(r *http.Request) answer {
	d.t.Helper()
	w := httptest.NewRecorder()
	d.page.ServeHTTP(w, r)
	return answer{w.Code, w.Result().Header, w.Body.String()}
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

// fields returns the hidden fields of the form that frees the key.
func (a answer) fields() []string {
	_, f, _ := strings.Cut(a.text, `value="forget">`)
	var fields []string
	for _, m := range regexp.MustCompile(`type="hidden" name="(\w+)" value="([^"]*)"`).FindAllStringSubmatch(f, -1) {
		fields = append(fields, m[1], html.UnescapeString(m[2]))
	}
	return append(fields, "action", "forget", "ledger", "yes")
}

func (d *desk) want(a answer, status int, parts ...string) {
	d.t.Helper()
	if a.status != status {
		d.t.Errorf("status %d, want %d: %s", a.status, status, a.text)
	}
	for _, part := range parts {
		if !strings.Contains(html.UnescapeString(a.text), part) {
			d.t.Errorf("%q is not in %s", part, a.text)
		}
	}
}

// holds checks whether the key is still in Redis.
func (d *desk) holds(key string, want bool) {
	d.t.Helper()
	if _, ok := d.backend.Raw(d.t, key); ok != want {
		d.t.Errorf("%s is in Redis: %v, want %v", key, ok, want)
	}
}

func TestLookAndFree(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	key := d.stuck("k")
	looked := d.send(form("action", "inspect", "key", "urn:onceguard:key:"+key[len(key)-64:]))
	d.want(looked, 200, "The key is abandoned", "ended without an outcome", key, "<dt>kept without an outcome</dt>", "Free the key")
	if len(d.trail) != 2 || d.trail[0].Done || !d.trail[1].Done || d.trail[1].Err != nil || d.trail[1].Action != admin.Inspect {
		t.Errorf("trail %+v", d.trail)
	}
	d.trail = nil
	freed := d.send(form(append(looked.fields(), "reason", "  the charge is not at the provider, INC-7 ")...))
	d.want(freed, 200, "The key is free", "unless a journal has its outcome")
	d.holds(key, false)
	if len(d.trail) != 2 {
		t.Fatalf("trail %+v", d.trail)
	}
	for i, e := range d.trail {
		if e.Action != admin.Forget || e.Key != key || e.Token == "" || e.Reason != "the charge is not at the provider, INC-7" ||
			e.Done != (i == 1) || e.Err != nil || e.EvenIfLive {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	d.want(d.send(form("action", "inspect", "key", key)), 200, "The key is free", "Redis has no such key", "unless a journal")
}

// Only what was looked at is freed: not the claim or the response that has taken its place.
func TestFreeOnlyWhatWasLookedAt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	key := d.stuck("k")
	looked := d.send(form("action", "inspect", "key", key))
	info, err := d.locker.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.locker.Forget(t.Context(), key, info.Token); err != nil {
		t.Fatal(err)
	}
	claim, err := d.locker.Claim(t.Context(), "k", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := claim.Lease.Settle(t.Context(), []byte("a response"), time.Hour); err != nil {
		t.Fatal(err)
	}
	a := d.send(form(append(looked.fields(), "reason", "stuck")...))
	d.want(a, 409, "has changed since you looked", "The key is settled", `value="stuck"`)
	d.holds(key, true)
	freed, last := d.trail[len(d.trail)-3], d.trail[len(d.trail)-1]
	if !freed.Done || !errors.Is(freed.Err, lock.ErrChanged) || last.Action != admin.Inspect || !last.Done {
		t.Errorf("entries %+v, %+v", freed, last)
	}
	d.want(d.send(form(append(a.fields(), "reason", "stuck")...)), 200, "The key is free")
}

func TestLiveLease(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		var opts []admin.Option
		if live {
			opts = append(opts, admin.WithLive())
		}
		d := newDesk(t, opts...)
		claim, err := d.locker.Claim(t.Context(), "k", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		looked := d.send(form("action", "inspect", "key", claim.Key))
		d.want(looked, 200, "The key is held", "<dt>lease</dt>", "unless it is renewed")
		if got := strings.Contains(looked.text, "Free the key"); got != live {
			t.Errorf("with WithLive %v the page offers to free it: %v", live, got)
		}
		fields := []string{"action", "forget", "key", claim.Key, "token", claim.Lease.Token(), "reason", "it hangs", "ledger", "yes"}
		d.want(d.send(form(fields...)), 409, "may still be running")
		d.holds(claim.Key, true)
		a := d.send(form(append(fields, "live", "yes")...))
		d.holds(claim.Key, !live)
		if live {
			d.want(a, 200, "The key is free")
		} else {
			d.want(a, 409, "may still be running")
		}
		if !slices.ContainsFunc(d.trail, func(e admin.Entry) bool { return e.EvenIfLive == live && e.Action == admin.Forget }) {
			t.Errorf("trail %+v", d.trail)
		}
		_ = claim.Lease.Release(t.Context())
	}
}

// A lock's page says who holds it.
func TestLock(t *testing.T) {
	t.Parallel()
	d := newDesk(t, admin.WithLive())
	lease, err := d.locker.Acquire(lock.NewOwnerContext(t.Context(), "batch-7: nightly"), "k")
	if err != nil {
		t.Fatal(err)
	}
	key := d.locker.StorageKey("k")
	looked := d.send(form("action", "inspect", "key", key))
	d.want(looked, 200, "The key is held", "It is a lock, and its holder is at work", "<dt>owner</dt><dd>batch-7: nightly</dd>", "<dt>claimed</dt>")
	fields := []string{"action", "forget", "key", key, "token", lease.Token(), "reason", "it hangs", "ledger", "yes", "live", "yes"}
	d.want(d.send(form(fields...)), 200, "The key is free")
	d.holds(key, false)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// What the request was and what its response is never reach the page, nor what somebody else has typed.
func TestPageShowsNoSecret(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var key string
	once := middleware.Idempotency(d.locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) { key = e.Key }))
	r := httptest.NewRequest(http.MethodPost, "/classified-path", strings.NewReader("classified body"))
	r.SetBasicAuth("classified-user", "")
	r.Header.Set("Idempotency-Key", "classified-key")
	once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Classified", "classified header")
		_, _ = io.WriteString(w, "classified response")
	})).ServeHTTP(httptest.NewRecorder(), r)
	d.stuck("other")
	for _, k := range []string{key, d.locker.StorageKey("other")} {
		looked := d.send(form("action", "inspect", "key", k))
		d.want(looked, 200, "<dt>size</dt>")
		if strings.Contains(strings.ToLower(looked.text+fmt.Sprint(looked.header)), "classified") {
			t.Errorf("the page has a secret: %s", looked.text)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	key := d.stuck("k")
	token := d.send(form("action", "inspect", "key", key)).fields()
	d.trail = nil
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	free := func() *http.Request { return form(append(token, "reason", "stuck")...) }
	for name, test := range map[string]struct {
		r      *http.Request
		edit   func(*http.Request)
		status int
	}{
		"GET with a key":             {httptest.NewRequest(http.MethodGet, "/keys?key="+url.QueryEscape(key), nil), nil, 400},
		"GET with an empty query":    {httptest.NewRequest(http.MethodGet, "/keys?", nil), nil, 400},
		"HEAD with a key":            {httptest.NewRequest(http.MethodHead, "/keys?key=k", nil), nil, 400},
		"POST with a key in the URL": {free(), func(r *http.Request) { r.URL.RawQuery = "key=k" }, 400},
		"another site":               {free(), with("Sec-Fetch-Site", "cross-site"), 403},
		"a sibling site":             {free(), with("Sec-Fetch-Site", "same-site"), 403},
		"another origin":             {free(), with("Origin", "https://evil.example"), 403},
		"no origin":                  {free(), with("Origin", "null"), 403},
		"DELETE":                     {httptest.NewRequest(http.MethodDelete, "/keys", nil), nil, 405},
		"JSON":                       {free(), with("Content-Type", "application/json"), 415},
		"no type":                    {free(), func(r *http.Request) { r.Header.Del("Content-Type") }, 415},
		"malformed":                  {httptest.NewRequest(http.MethodPost, "/keys", strings.NewReader("%zz")), with("Content-Type", "application/x-www-form-urlencoded"), 400},
		"too long":                   {form("action", "inspect", "key", strings.Repeat("k", 9000)), nil, 413},
		"a key that is too long":     {form("action", "inspect", "key", strings.Repeat("k", 301)), nil, 422},
		"no key":                     {form("action", "inspect", "key", "  "), nil, 422},
		"a key of bytes":             {form("action", "inspect", "key", "\xff"), nil, 422},
		"no action":                  {form("key", key), nil, 400},
		"another action":             {form("action", "scan", "key", key), nil, 400},
		"no token":                   {form("action", "forget", "key", key, "reason", "stuck"), nil, 422},
		"a long token":               {form("action", "forget", "key", key, "token", strings.Repeat("t", 101), "reason", "stuck"), nil, 422},
		"the ledger not looked at":   {form(append(token, "reason", "stuck", "ledger", "no")...), nil, 422},
		"resolve":                    {form(append(token, "reason", "stuck", "action", "resolve", "status", "201")...), nil, 400},
		"no reason":                  {form(append(token, "reason", "  ")...), nil, 422},
		"a long reason":              {form(append(token, "reason", strings.Repeat("ä", 501))...), nil, 422},
		"a reason of two lines":      {form(append(token, "reason", "a\nb")...), nil, 422},
		"a reason that turns around": {form(append(token, "reason", "a\u202eb")...), nil, 422},
		"a reason of bytes":          {form(append(token, "reason", "a\xffb")...), nil, 422},
		"a key with an escape":       {form("action", "inspect", "key", "k\x1b[2J"), nil, 422},
		"a key of two lines":         {form("action", "inspect", "key", "k\nuser=root"), nil, 422},
		"a key of two paragraphs":    {form("action", "inspect", "key", "k\u2029user=root"), nil, 422},
		"a key that turns around":    {form("action", "inspect", "key", "k\u2066k"), nil, 422},
		"a key to free, of a C1":     {form(append(token, "reason", "stuck", "key", "k\u009b2J")...), nil, 422},
		"a token with an escape":     {form(append(token, "reason", "stuck", "token", "t\x1b[2J")...), nil, 422},
	} {
		if test.edit != nil {
			test.edit(test.r)
		}
		a := d.send(test.r)
		if a.status != test.status {
			t.Errorf("%s: %d, want %d: %s", name, a.status, test.status, a.text)
		}
		// A form that is complete but for its change is a look-up, which is audited too.
		for i, e := range d.trail {
			if e.Action != admin.Inspect || e.Key != key || e.Done != (i == 1) || a.status != http.StatusUnprocessableEntity {
				t.Errorf("%s: trail %+v", name, d.trail)
			}
		}
		if strings.Contains(a.text, "The key is") != (len(d.trail) == 2) {
			t.Errorf("%s: shown and not audited, or the other way round: %+v", name, d.trail)
		}
		d.trail = nil
		d.holds(key, true)
		checkHeader(t, name, a)
	}
}

// A browser's own form, and a program that is no browser, are let through.
func TestSameOrigin(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(http.Header){
		"a browser":    func(h http.Header) { h.Set("Sec-Fetch-Site", "same-origin"); h.Set("Origin", "https://ops.example") },
		"an older one": func(h http.Header) { h.Set("Origin", "https://ops.example") },
		"a program":    func(http.Header) {},
	} {
		d := newDesk(t)
		r := form("action", "inspect", "key", d.stuck("k"))
		edit(r.Header)
		if a := d.send(r); a.status != 200 {
			t.Errorf("%s: %d", name, a.status)
		}
	}
}

// What people write is no control character: a reason may have an emoji that is joined, and letters of any script.
func TestReasonsOfPeople(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"déjà\u00a0: vu", "سه\u200cشنبه", "\U0001f469\u200d\U0001f4bb \u2764\ufe0f"} {
		d := newDesk(t)
		looked := d.send(form("action", "inspect", "key", d.stuck("k")))
		d.want(d.send(form(append(looked.fields(), "reason", reason)...)), 200, "The key is free")
		if e := d.trail[len(d.trail)-1]; e.Reason != reason {
			t.Errorf("the trail has %q, want %q", e.Reason, reason)
		}
	}
}

func TestNotAllowed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	key := d.stuck("k")
	d.allowed = false
	for _, r := range []*http.Request{httptest.NewRequest(http.MethodGet, "/keys", nil), form("action", "inspect", "key", key)} {
		a := d.send(r)
		d.want(a, 403)
		if strings.Contains(a.text, "<form") || strings.Contains(a.text, key) || len(d.trail) > 0 {
			t.Errorf("%s, trail %+v", a.text, d.trail)
		}
	}
}

func TestOtherKeys(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.want(d.send(form("action", "inspect", "key", "<script>alert(1)</script>")), 422, "not a storage key", "<script>alert(1)</script>")
	if a := d.send(form("action", "inspect", "key", "<script>alert(1)</script>")); strings.Contains(a.text, "<script>") {
		t.Errorf("not escaped: %s", a.text)
	}
	key := d.locker.StorageKey("foreign")
	if err := d.backend.Client(t).Set(t.Context(), key, "another program's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	a := d.send(form("action", "inspect", "key", key))
	d.want(a, 409, "Another program")
	d.want(d.send(form("action", "inspect", "key", key[strings.Index(key, "}")+1:])), 409, "Another program") // as a customer's page has it
	if strings.Contains(a.text, "another program's") {
		t.Error("its value is shown")
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	key := d.stuck("k")
	fields := append(d.send(form("action", "inspect", "key", key)).fields(), "reason", "stuck")

	full := errors.New("classified: the disk is full")
	d.refuse = func(e admin.Entry) error { return full }
	for _, r := range []*http.Request{form("action", "inspect", "key", key), form(fields...)} {
		a := d.send(r)
		d.want(a, 503, "It was not done")
		if strings.Contains(a.text, "classified") || strings.Contains(a.text, "abandoned") {
			t.Errorf("%s", a.text)
		}
	}
	d.holds(key, true)

	d.refuse = func(e admin.Entry) error {
		if e.Done {
			return full
		}
		return nil
	}
	d.want(d.send(form("action", "inspect", "key", key)), 503, "could not be recorded")
	d.want(d.send(form(fields...)), 503, "It was done, but could not be recorded")
	d.holds(key, false)
}

func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
	locker := lock.New(proxy.Client(t), "payments-api", lock.WithOpTimeout(100*time.Millisecond))
	defer func() { _ = locker.Close(context.Background()) }()
	var last admin.Entry
	page := admin.Handler(locker, func(*http.Request) bool { return true }, func(_ *http.Request, e admin.Entry) error {
		last = e
		return nil
	})
	proxy.BlackHole()
	for action, r := range map[admin.Action]*http.Request{
		admin.Inspect: form("action", "inspect", "key", locker.StorageKey("k")),
		admin.Forget:  form("action", "forget", "key", locker.StorageKey("k"), "reason", "stuck", "ledger", "yes", "token", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
	} {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if strings.Contains(w.Body.String(), "may be done or not") != (action == admin.Forget) {
			t.Errorf("%s: %s", action, w.Body)
		}
		if w.Code != 503 || !strings.Contains(w.Body.String(), "Redis or the journal did not answer") || last.Err == nil || !last.Done {
			t.Errorf("%d, %+v", w.Code, last)
		}
	}
	proxy.Heal()
}

func checkHeader(t *testing.T, name string, a answer) {
	t.Helper()
	csp := a.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
		if !strings.Contains(csp, part) {
			t.Errorf("%s: %q is not in the policy %q", name, part, csp)
		}
	}
	if strings.Contains(csp, "unsafe") || a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s: header %v", name, a.header)
	}
}

// Whatever the page shows, its style is the one that the policy allows, it has no script, and each field has a label.
func TestPageIsStrictAndAccessible(t *testing.T) {
	t.Parallel()
	d := newDesk(t, admin.WithLive())
	claim, err := d.locker.Claim(t.Context(), "live", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	key := d.stuck("k")
	for name, a := range map[string]answer{
		"empty":     d.send(httptest.NewRequest(http.MethodGet, "/keys", nil)),
		"abandoned": d.send(form("action", "inspect", "key", key)),
		"held":      d.send(form("action", "inspect", "key", claim.Key)),
		"problem":   d.send(form("action", "inspect", "key", "x")),
	} {
		checkHeader(t, name, a)
		style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(a.text)
		if style == nil {
			t.Fatalf("%s: no style: %s", name, a.text)
		}
		sum := sha256.Sum256([]byte(style[1]))
		if hash := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(a.header.Get("Content-Security-Policy"), hash) {
			t.Errorf("%s: the policy does not allow the style", name)
		}
		if regexp.MustCompile(`(?i)<script|javascript:|\son\w+=|\sstyle=|https?://`).MatchString(a.text) {
			t.Errorf("%s: not strict: %s", name, a.text)
		}
		for _, m := range regexp.MustCompile(`<input type="text" id="(\w+)"`).FindAllStringSubmatch(a.text, -1) {
			if !strings.Contains(a.text, `<label for="`+m[1]+`">`) || strings.Count(a.text, ` id="`+m[1]+`"`) != 1 {
				t.Errorf("%s: the field %s has no label of its own", name, m[1])
			}
		}
		for _, part := range []string{`<html lang="en">`, "<title>", "<main>", "<h1>", "color-scheme: light dark", "name=\"viewport\""} {
			if !strings.Contains(a.text, part) {
				t.Errorf("%s: %q is missing", name, part)
			}
		}
	}
	_ = claim.Lease.Release(t.Context())
}

func TestHandlerPanics(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	allow, audit := func(*http.Request) bool { return true }, func(*http.Request, admin.Entry) error { return nil }
	for want, f := range map[string]func(){
		"locker is nil":    func() { admin.Handler(nil, allow, audit) },
		"allow is nil":     func() { admin.Handler(d.locker, nil, audit) },
		"audit is nil":     func() { admin.Handler(d.locker, allow, nil) },
		"an option is nil": func() { admin.Handler(d.locker, allow, audit, nil) },

		"lock.None needs WithMiddleware":   func() { admin.Handler(lock.None("test"), allow, audit) },
		"WithResolve needs WithMiddleware": func() { admin.Handler(d.locker, allow, audit, admin.WithResolve()) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != "admin.Handler: "+want {
					t.Errorf("panic = %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
}
