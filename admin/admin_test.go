package admin_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

func TestLookAndFree(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	key := d.stuck([]byte("classified note"))
	d.look("urn:onceguard:key:"+key[len(key)-64:]).
		want(200, "The key is abandoned", "ended without an outcome", key, "<dt>hold</dt>", "Free the key").hides("classified")
	d.wantTrail(admin.Entry{Action: "inspect", Key: "urn:onceguard:key:" + key[len(key)-64:]})
	for _, reason := range []string{"  not at the provider, INC-7 ", "déjà\u00a0: vu", "سه\u200cشنبه", "\U0001f469\u200d\U0001f4bb \u2764\ufe0f"} {
		looked := d.look(d.stuck(nil))
		d.trail = nil
		d.send(looked, "forget", "reason", reason).want(200, "The key is free", "unless a journal has its outcome")
		d.holds(key, false)
		d.wantTrail(admin.Entry{Action: "forget", Key: key, Reason: strings.TrimSpace(reason)})
	}
	d.look(key).want(200, "The key is free", "Redis has no such key", "unless a journal")
}

// Only what was looked at is freed: not a claim that is held, that of a lock neither, nor the response that has taken its place.
// The page says who holds it, and shows what is there now.
func TestFreeOnlyWhatWasLookedAt(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	looked := d.look(d.stuck(nil))
	d.backend.FlushAll(t)
	lease, err := d.locker.Acquire(lock.NewOwnerContext(t.Context(), "batch-7: nightly"), "k")
	if err != nil {
		t.Fatal(err)
	}
	key := d.locker.StorageKey("k")
	d.look(key).want(200, "The key is held", "It is a lock, and its holder is at work", "<dt>owner</dt><dd>batch-7: nightly</dd>",
		"unless it is renewed", "cannot be freed from this page").hides("Free the key")
	d.send(answer{}, "forget", "key", key, "token", lease.Token()).want(409, "the lease has not run out")
	if err := lease.Settle(t.Context(), []byte("a response"), time.Hour); err != nil {
		t.Fatal(err)
	}
	settled := d.send(looked, "forget", "reason", "stuck").
		want(409, "does not hold the claim or value that the token names", "The key is settled", `value="stuck"`)
	d.holds(key, true)
	freed, last := d.trail[len(d.trail)-3], d.trail[len(d.trail)-1]
	if !freed.Done || !errors.Is(freed.Err, lock.ErrChanged) || last.Action != "inspect" || !last.Done {
		t.Errorf("entries %+v, %+v", freed, last)
	}
	d.send(settled, "forget").want(200, "The key is free")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	key := d.stuck(nil)
	looked := d.look(key)
	get := func(target string) *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }
	forget := func(fields ...string) *http.Request { return form(append(looked.fields("forget"), fields...)...) }
	inspect := func(key string) *http.Request { return form("action", "inspect", "key", key) }
	with := func(name, value string) *http.Request {
		r := forget()
		r.Header.Set(name, value)
		return r
	}
	inURL := forget()
	inURL.URL.RawQuery = "key=k"
	malformed := httptest.NewRequest(http.MethodPost, "/keys", strings.NewReader("%zz"))
	malformed.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, test := range map[string]struct {
		status int
		r      *http.Request
	}{
		"GET with a key":             {400, get("/keys?key=" + url.QueryEscape(key))},
		"POST with a key in the URL": {400, inURL},
		"another site":               {403, with("Sec-Fetch-Site", "cross-site")},
		"another origin":             {403, with("Origin", "https://evil.example")},
		"DELETE":                     {405, httptest.NewRequest(http.MethodDelete, "/keys", nil)},
		"JSON":                       {415, with("Content-Type", "application/json")},
		"malformed":                  {400, malformed},
		"too long":                   {413, inspect(strings.Repeat("k", 1<<20))},
		"a key that is too long":     {422, inspect(strings.Repeat("k", 301))},
		"no key":                     {422, inspect("  ")},
		"a key with an escape":       {422, inspect("k\x1b[2J")},
		"a key of two lines":         {422, inspect("k\nuser=root")},
		"a key that turns around":    {422, inspect("k\u2066k")},
		"no action":                  {400, form("key", key)},
		"another action":             {400, form("action", "scan", "key", key)},
		"resolve":                    {400, forget("action", "resolve", "status", "201")},
		"no token":                   {422, forget("token", "")},
		"a long token":               {422, forget("token", strings.Repeat("t", 101))},
		"a key to free, of a C1":     {422, forget("key", "k\u009b2J")},
		"the ledger not looked at":   {422, forget("ledger", "no")},
		"no reason":                  {422, forget("reason", "  ")},
		"a long reason":              {422, forget("reason", strings.Repeat("ä", 501))},
		"a reason of two lines":      {422, forget("reason", "a\nb")},
	} {
		d.trail = nil
		a := d.do(test.r)
		if a.status != test.status {
			t.Errorf("%s: %d, want %d: %s", name, a.status, test.status, a.text)
		}
		// A form that is complete but for its change is a look-up, which is audited too.
		if strings.Contains(a.text, "The key is") != (len(d.trail) == 2) {
			t.Errorf("%s: shown and not audited, or the other way round: %+v", name, d.trail)
		}
		d.wantTrail(admin.Entry{Action: "inspect", Key: key})
		d.holds(key, true)
		checkHeader(t, name, a)
	}
	d.allowed = false
	for _, r := range []*http.Request{get("/keys"), inspect(key)} {
		d.do(r).want(403).hides("<form", key)
	}
	d.wantTrail(admin.Entry{})
}

func TestOtherKeys(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.look("<script>alert(1)</script>").want(422, "not a storage key", "<script>alert(1)</script>").hides("<script>")
	key := d.locker.StorageKey("foreign")
	if err := d.backend.Client(t).Set(t.Context(), key, "another program's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{key, key[len(key)-64:]} { // as a customer's page has it
		d.look(k).want(409, "a foreign value").hides("another program's")
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	key := d.stuck(nil)
	looked := d.look(key)
	full := errors.New("classified: the disk is full")
	d.refuse = func(admin.Entry) error { return full }
	d.look(key).want(503, "It was not done").hides("classified", "abandoned")
	d.send(looked, "forget").want(503, "It was not done").hides("classified", "abandoned")
	d.holds(key, true)
	d.refuse = func(e admin.Entry) error { return map[bool]error{true: full}[e.Done] }
	d.look(key).want(503, "could not be recorded").hides("abandoned")
	d.send(looked, "forget").want(503, "It was done, but could not be recorded")
	d.holds(key, false)
}

// fault: Redis does not answer. Expected: the page says what it does not know.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
	d := &desk{t: t, locker: lock.New(proxy.Client(t), "payments-api", lock.WithOpTimeout(100*time.Millisecond))}
	defer func() { _ = d.locker.Close(context.Background()) }()
	d.open(nil)
	proxy.BlackHole()
	key := d.locker.StorageKey("k")
	d.look(key).want(503, "Redis or the journal did not answer").hides("may be done or not")
	d.send(answer{}, "forget", "key", key, "token", "t").want(503, "Redis or the journal did not answer", "may be done or not")
	if last := d.trail[len(d.trail)-1]; last.Err == nil || !last.Done {
		t.Errorf("%+v", last)
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
	d := newDesk(t, resolving)
	wrong := regexp.MustCompile(`(?i)<script|javascript:|\son\w+=|\sstyle=|https?://`)
	for name, a := range map[string]answer{
		"empty":     d.do(httptest.NewRequest(http.MethodGet, "/keys", nil)).want(200),
		"abandoned": d.look(d.stuck(nil)).want(200),
		"problem":   d.look("x").want(422),
	} {
		checkHeader(t, name, a)
		a.want(a.status, `<html lang="en">`, "<title>", "<main>", "<h1>", "color-scheme: light dark", `name="viewport"`)
		_, style, _ := strings.Cut(a.text, "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		sum := sha256.Sum256([]byte(style))
		if hash := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(a.header.Get("Content-Security-Policy"), hash) {
			t.Errorf("%s: the policy does not allow the style", name)
		}
		if wrong.MatchString(a.text) {
			t.Errorf("%s: not strict: %s", name, a.text)
		}
		for _, m := range regexp.MustCompile(`<input type="text" id="(\w+)"`).FindAllStringSubmatch(a.text, -1) {
			if !strings.Contains(a.text, `<label for="`+m[1]+`">`) || strings.Count(a.text, ` id="`+m[1]+`"`) != 1 {
				t.Errorf("%s: the field %s has no label of its own", name, m[1])
			}
		}
	}
}

func TestHandlerPanics(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	allow, audit := func(*http.Request) bool { return true }, func(*http.Request, admin.Entry) error { return nil }
	for want, f := range map[string]func(){
		"Handler: locker is nil":                    func() { admin.Handler(nil, allow, audit) },
		"Handler: allow is nil":                     func() { admin.Handler(d.locker, nil, audit) },
		"Handler: audit is nil":                     func() { admin.Handler(d.locker, allow, nil) },
		"Handler: an option is nil":                 func() { admin.Handler(d.locker, allow, audit, nil) },
		"Handler: lock.None needs WithMiddleware":   func() { admin.Handler(lock.None("test"), allow, audit) },
		"Handler: WithResolve needs WithMiddleware": func() { admin.Handler(d.locker, allow, audit, admin.WithResolve()) },
		"WithMiddleware: the Middleware is nil":     func() { admin.WithMiddleware(nil) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != "admin."+want {
					t.Errorf("panic = %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
}
