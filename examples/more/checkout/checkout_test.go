package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// site is a shop behind a listener.
type site struct {
	*shop
	t   *testing.T
	url string
}

func open(t *testing.T, profile string) *site {
	t.Helper()
	s, err := openShop(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "shop.db"), profile, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		server.Close()
		s.mini.Close()
		_ = s.db.Close()
	})
	return &site{s, t, server.URL}
}

// reply is a response that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// member returns a member of the body that is a string.
func (r reply) member(name string) string {
	var members map[string]any
	_ = json.Unmarshal([]byte(r.body), &members)
	text, _ := members[name].(string)
	return text
}

type edit func(*http.Request)

func header(name, value string) edit { return func(r *http.Request) { r.Header.Set(name, value) } }

// send sends a request of the identity ann. It may be called in any goroutine.
func (s *site) send(method, path, key, body string, edits ...edit) reply {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return reply{}
	}
	r.Header.Set("Authorization", "Bearer ann")
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for _, e := range edits {
		e(r)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		s.t.Error(err)
		return reply{}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Error(err)
	}
	return reply{response.StatusCode, response.Header, string(text)}
}

func (s *site) post(path, key, body string, edits ...edit) reply {
	return s.send(http.MethodPost, path, key, body, edits...)
}

// want checks the status of a reply, and whether it is a replay.
func (s *site) want(r reply, status int, replayed bool) reply {
	s.t.Helper()
	if r.status != status || r.replayed() != replayed {
		s.t.Errorf("got %d (%s), replayed %t; want %d, %t", r.status, strings.TrimSpace(r.body), r.replayed(), status, replayed)
	}
	return r
}

// wantCode checks an error.
func (s *site) wantCode(r reply, status int, code string) reply {
	s.t.Helper()
	if s.want(r, status, false); r.member("code") != code {
		s.t.Errorf("got %s, want the code %s", r.body, code)
	}
	return r
}

// wantCount checks how many checkouts or orders there are.
func (s *site) wantCount(path string, want int) {
	s.t.Helper()
	var ids []string
	if err := json.Unmarshal([]byte(s.send(http.MethodGet, path, "", "").body), &ids); err != nil || len(ids) != want {
		s.t.Errorf("%s: got %q, %v, want %d", path, ids, err, want)
	}
}

const tea = `{"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur"}`

// created returns the path of a new checkout.
func (s *site) created() string {
	s.t.Helper()
	r := s.post(s.sessions, newID("key"), tea)
	if s.want(r, http.StatusCreated, false); r.member("status") != s.ready {
		s.t.Fatalf("got %s", r.body)
	}
	return s.sessions + "/" + r.member("id")
}

// The four cases of UCP's conformance suite ("idempotency"): the same key and body get the same status and body, and another
// body gets 409.
func TestUCPConformance(t *testing.T) {
	t.Parallel()
	s := open(t, "ucp")
	const coffee = `{"line_items":[{"item":{"id":"coffee"},"quantity":2}],"currency":"eur"}`
	const payment, otherPayment = `{"payment":{"instruments":[{"credential":{"token":"a"}}]}}`, `{"payment":{"instruments":[{"credential":{"token":"b"}}]}}`
	for name, c := range map[string]struct {
		method, path, body, other string
		status                    int
	}{
		"create":   {http.MethodPost, s.sessions, tea, coffee, http.StatusCreated},
		"update":   {http.MethodPut, s.created(), coffee, tea, http.StatusOK},
		"complete": {http.MethodPost, s.created() + "/complete", payment, otherPayment, http.StatusOK},
		"cancel":   {http.MethodPost, s.created() + "/cancel", "", "{}", http.StatusOK},
	} {
		first := s.want(s.send(c.method, c.path, "k-"+name, c.body), c.status, false)
		again := s.want(s.send(c.method, c.path, "k-"+name, c.body), c.status, true)
		if again.body != first.body {
			t.Errorf("%s: got %s, then %s", name, first.body, again.body)
		}
		s.wantCode(s.send(c.method, c.path, "k-"+name, c.other), http.StatusConflict, "idempotency_conflict")
	}
	s.wantCount("/orders", 1)
	s.wantCount(s.sessions, 4)

	// The key is optional.
	s.want(s.post(s.created()+"/complete", "", payment), http.StatusOK, false)
	s.wantCount("/orders", 2)
}

// acp is the tests of ACP's section 6, by what each sentence demands.
var acp = map[string]func(*testing.T, *site){
	"6.1 every POST needs a key": func(t *testing.T, s *site) {
		path := s.created()
		for _, path := range []string{s.sessions, path, path + "/complete", path + "/cancel"} {
			r := s.wantCode(s.post(path, "", tea), http.StatusBadRequest, "idempotency_key_required")
			if r.member("type") != "invalid_request" || r.member("message") == "" || r.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %v, %s", path, r.header, r.body)
			}
		}
		s.want(s.send(http.MethodGet, path, "", ""), http.StatusOK, false)
		s.wantCount(s.sessions, 1)
	},
	"6.1 an opaque string": func(_ *testing.T, s *site) {
		for _, key := range []string{"k", `"k"`, `"k`, "a,b;c", strings.Repeat("k", 255)} {
			s.want(s.post(s.sessions, key, tea), http.StatusCreated, false)
			s.want(s.post(s.sessions, key, tea), http.StatusCreated, true)
		}
		s.wantCount(s.sessions, 5)
	},
	"6.1 of at most 255 characters": func(_ *testing.T, s *site) {
		s.wantCode(s.post(s.sessions, strings.Repeat("k", 256), tea), http.StatusBadRequest, "idempotency_key_invalid")
		s.wantCount(s.sessions, 0)
	},
	"6.1 the scope is the identity and the path": func(t *testing.T, s *site) {
		path, other := s.created(), s.created()
		for _, path := range []string{s.sessions, path, other, path + "/complete", other + "/cancel"} {
			s.want(s.post(path, "k", tea), map[bool]int{true: http.StatusCreated, false: http.StatusOK}[path == s.sessions], false)
		}
		bob := s.post(s.sessions, "k", tea, header("Authorization", "Bearer bob"))
		s.want(bob, http.StatusCreated, false)
		if anns := s.post(s.sessions, "k", tea); anns.body == bob.body {
			t.Errorf("both got %s", bob.body)
		}
	},
	"6.2 JSON equality of the body": func(_ *testing.T, s *site) {
		const (
			first     = `{"line_items":[{"item":{"id":"tea"},"quantity":1},{"item":{"id":"cup"},"quantity":2}],"currency":"eur"}`
			order     = `{ "currency":"eur", "line_items":[{"quantity":1,"item":{"id":"tea"}},{"quantity":2,"item":{"id":"cup"}}]}`
			zeros     = `{"line_items":[{"item":{"id":"tea"},"quantity":1.0},{"item":{"id":"cup"},"quantity":2.00}],"currency":"eur"}`
			withNull  = `{"line_items":[{"item":{"id":"tea"},"quantity":1},{"item":{"id":"cup"},"quantity":2}],"currency":"eur","buyer":null}`
			elements  = `{"line_items":[{"item":{"id":"cup"},"quantity":2},{"item":{"id":"tea"},"quantity":1}],"currency":"eur"}`
			quantity  = `{"line_items":[{"item":{"id":"tea"},"quantity":1},{"item":{"id":"cup"},"quantity":3}],"currency":"eur"}`
			extension = `{"line_items":[{"item":{"id":"tea"},"quantity":1},{"item":{"id":"cup"},"quantity":2}],"currency":"eur","discounts":{"codes":["A"]}}`
		)
		s.want(s.post(s.sessions, "k", first), http.StatusCreated, false)
		for _, body := range []string{order, zeros} {
			s.want(s.post(s.sessions, "k", body), http.StatusCreated, true)
		}
		for _, body := range []string{withNull, elements, quantity, extension} { // the last is section 6.7
			s.wantCode(s.post(s.sessions, "k", body), http.StatusUnprocessableEntity, "idempotency_conflict")
		}
		s.wantCount(s.sessions, 1)
	},
	"6.2 headers are excluded": func(_ *testing.T, s *site) {
		s.want(s.post(s.sessions, "k", tea), http.StatusCreated, false)
		s.want(s.post(s.sessions, "k", tea, header("Content-Type", "application/json; charset=utf-8"), header("Accept-Language", "de"),
			header("Request-Id", "2")), http.StatusCreated, true)
	},
	"6.3 the original response, its status and a header": func(t *testing.T, s *site) {
		path := s.created()
		for _, path := range []string{s.sessions, path, path + "/complete"} {
			first := s.post(path, "k", tea)
			again := s.want(s.post(path, "k", tea), first.status, true)
			if again.body != first.body {
				t.Errorf("%s: got %s, then %s", path, first.body, again.body)
			}
		}
		s.want(s.post(path+"/cancel", "k", ""), http.StatusMethodNotAllowed, false) // a 4xx is an original response, too
		s.want(s.post(path+"/cancel", "k", ""), http.StatusMethodNotAllowed, true)
	},
	"6.3 no side effect on a replay": func(_ *testing.T, s *site) {
		path := s.created()
		for i := range 3 {
			s.want(s.post(path+"/complete", "k", "{}"), http.StatusOK, i > 0)
		}
		s.wantCount("/orders", 1)
	},
	"6.4 in flight": func(t *testing.T, s *site) {
		entered, open := make(chan struct{}), make(chan struct{})
		s.pause = func(*http.Request) error {
			close(entered)
			<-open
			return nil
		}
		first := make(chan reply)
		go func() { first <- s.post(s.sessions, "k", tea) }()
		<-entered
		r := s.wantCode(s.post(s.sessions, "k", tea), http.StatusConflict, "idempotency_in_flight")
		if r.member("type") != "invalid_request" || r.header.Get("Retry-After") == "" {
			t.Errorf("got %v, %s", r.header, r.body)
		}
		s.wantCode(s.post(s.sessions, "k", "{}"), http.StatusUnprocessableEntity, "idempotency_conflict")
		close(open)
		s.want(<-first, http.StatusCreated, false)
		s.wantCount(s.sessions, 1)
	},
	"6.5 a 5xx is not stored, and the retry is a new request": func(_ *testing.T, s *site) {
		path, failing := s.created(), errors.New("out of order")
		s.pause = func(*http.Request) error { return failing }
		for range 2 {
			s.wantCode(s.post(path+"/complete", "k", "{}"), http.StatusInternalServerError, "internal")
		}
		s.wantCount("/orders", 0)
		failing = nil
		s.want(s.post(path+"/complete", "k", "{}"), http.StatusOK, false)
		s.want(s.post(path+"/complete", "k", "{}"), http.StatusOK, true)
		s.wantCount("/orders", 1)
	},
	"6.6 kept for 24 hours, and then new": func(t *testing.T, s *site) {
		s.want(s.post(s.sessions, "k", tea), http.StatusCreated, false)
		for _, key := range s.mini.Keys() {
			if left := s.mini.TTL(key); left < 24*time.Hour-time.Minute {
				t.Errorf("%s stays for %v", key, left)
			}
		}
		s.mini.FlushAll()
		s.want(s.post(s.sessions, "k", tea), http.StatusCreated, true) // the journal has it, too
		s.mini.FlushAll()
		if _, err := s.db.ExecContext(t.Context(), "delete from onceguard_journal"); err != nil { // as after 24 hours
			t.Fatal(err)
		}
		s.want(s.post(s.sessions, "k", tea), http.StatusCreated, false)
		s.wantCount(s.sessions, 2)
	},
	"6.8 the record and the effect are one transaction": func(t *testing.T, s *site) {
		path := s.created()
		if _, err := s.db.ExecContext(t.Context(), "drop table orders"); err != nil {
			t.Fatal(err)
		}
		s.wantCode(s.post(path+"/complete", "k", "{}"), http.StatusInternalServerError, "internal")
		if got := s.send(http.MethodGet, path, "", ""); got.member("status") != s.ready {
			t.Errorf("half of the transaction is there: %s", got.body)
		}
		if _, err := s.db.ExecContext(t.Context(), tables); err != nil {
			t.Fatal(err)
		}
		s.want(s.post(path+"/complete", "k", "{}"), http.StatusOK, false)
	},
	"3.1 the key is echoed on all POST responses": func(t *testing.T, s *site) {
		path := s.created()
		for _, r := range []reply{
			s.post(s.sessions, "k", tea), s.post(s.sessions, "k", tea), s.post(s.sessions, "k", "{}"), s.post(s.sessions, "k2", "{"),
			s.post(path+"/cancel", "k", ""), s.post(s.sessions+"/none/complete", "k", ""),
		} {
			if echo := r.header.Get("Idempotency-Key"); echo == "" || !strings.HasPrefix(echo, "k") {
				t.Errorf("%d %s: the echo is %q", r.status, r.body, echo)
			}
		}
	},
}

// ACP's RFC "Agentic Checkout", section 6 as of 2026-04-17, sentence by sentence.
func TestACPSection6(t *testing.T) {
	t.Parallel()
	for name, test := range acp {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, "acp"))
		})
	}
}

// A checkout is its identity's. One that has ended does not change.
func TestCheckout(t *testing.T) {
	t.Parallel()
	for profile, ended := range map[string]int{"acp": http.StatusMethodNotAllowed, "ucp": http.StatusConflict} {
		s := open(t, profile)
		path := s.created()
		bob := header("Authorization", "Bearer bob")
		s.wantCode(s.send(http.MethodGet, path, "", "", bob), http.StatusNotFound, "session_not_found")
		s.wantCode(s.post(path+"/complete", "k", "", bob), http.StatusNotFound, "session_not_found")
		s.wantCode(s.post(path+"/cancel", "k", "", header("Authorization", "")), http.StatusUnauthorized, "unauthorized")
		r := s.want(s.post(path+"/complete", "k", ""), http.StatusOK, false)
		if r.member("status") != "completed" || !strings.Contains(r.body, `"order":{"id":"ord_`) {
			t.Errorf("got %s", r.body)
		}
		s.wantCode(s.post(path+"/complete", "k2", ""), ended, "session_ended")
		s.wantCode(s.post(path+"/cancel", "k", ""), ended, "session_ended")
		for i, body := range []string{"", "{", "[]", `{"line_items":[],"currency":"eur"}`, `{"line_items":[{"item":{"id":"tea"}}],"currency":"eur"}`} {
			if r := s.post(s.sessions, fmt.Sprint("bad", i), body); r.status != http.StatusBadRequest {
				t.Errorf("%q: %d", body, r.status)
			}
		}
		s.wantCount("/orders", 1)
	}
}
