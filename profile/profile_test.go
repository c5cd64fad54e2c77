package profile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/profile"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shop is an API with a profile. Its handler answers with the status that the body asks for.
type shop struct {
	t       *testing.T
	handler http.Handler
	runs    atomic.Int64
	hold    chan struct{} // if it is not nil, the handler closes entered, and waits until hold is closed
	entered chan struct{}
}

func open(t *testing.T, locker *lock.Locker, p profile.Profile, opts ...middleware.Option) *shop {
	t.Helper()
	s := &shop{t: t, entered: make(chan struct{})}
	once := middleware.Idempotency(locker, p.Key(keyfunc.BasicUser()), append([]middleware.Option{p.Option()}, opts...)...)
	s.handler = once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		if s.hold != nil {
			close(s.entered)
			<-s.hold
		}
		var asked struct{ Status int }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &asked)
		w.WriteHeader(max(asked.Status, http.StatusCreated))
	}))
	return s
}

func newLocker(t *testing.T) *lock.Locker {
	t.Helper()
	locker := lock.New(redistest.Mini(t).Client(t), "test", lock.WithOpTimeout(30*time.Second))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

// request is what a client sends. An empty user or key is not sent, and the others have defaults.
type request struct{ method, path, user, key, body, media string }

func (s *shop) send(q request) *httptest.ResponseRecorder {
	method, path := cmp.Or(q.method, http.MethodPost), cmp.Or(q.path, "/checkout_sessions")
	r := httptest.NewRequest(method, path, strings.NewReader(q.body))
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	if q.user != "" {
		r.SetBasicAuth(q.user, "")
	}
	r.Header.Set("Content-Type", "application/json"+q.media)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// result is an answer in short: its status, "replayed" or the error's code, and the key if it was echoed.
func result(w *httptest.ResponseRecorder) string {
	var e struct {
		Code  string
		Error struct{ Type, Code string }
	}
	_ = json.Unmarshal(w.Body.Bytes(), &e)
	words := []string{fmt.Sprint(w.Code), e.Code + e.Error.Code}
	switch {
	case w.Header().Get("Idempotent-Replayed") == "true":
		words[1] = "replayed"
	case e.Error.Type == "idempotency_error" && e.Error.Code == "":
		words[1] = e.Error.Type
	case e.Code+e.Error.Code == "":
		words[1] = "ran"
	}
	if echo := w.Header().Get("Idempotency-Key"); echo != "" {
		words = append(words, echo)
	}
	return strings.Join(words, " ")
}

const (
	body      = `{"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur"}`
	respelled = `{ "currency":"eur", "line_items":[{"quantity":1.0,"item":{"id":"tea"}}] }`
	withNull  = `{"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur","buyer":null}`
	reordered = `{"line_items":[{"item":{"id":"tea"},"quantity":1},{}],"currency":"eur"}`
)

// What each profile answers to the same requests, in this order.
func TestRules(t *testing.T) {
	t.Parallel()
	const long = "kkkkkkkkkkkkkkkk"
	var shops []*shop
	for _, p := range profiles {
		shops = append(shops, open(t, newLocker(t), p))
	}
	for _, c := range []struct {
		what string
		send request
		want [3]string // of ACP, UCP, Stripe
	}{
		{"the first", request{user: "ann", key: "k1", body: body}, [3]string{"201 ran k1", "201 ran", "201 ran k1"}},
		{"again", request{user: "ann", key: "k1", body: body}, [3]string{"201 replayed k1", "201 replayed", "201 replayed k1"}},
		{"spelled otherwise", request{user: "ann", key: "k1", body: respelled},
			[3]string{"201 replayed k1", "409 idempotency_conflict", "400 idempotency_error k1"}},
		{"null, not absent", request{user: "ann", key: "k1", body: withNull},
			[3]string{"422 idempotency_conflict k1", "409 idempotency_conflict", "400 idempotency_error k1"}},
		{"another array", request{user: "ann", key: "k1", body: reordered},
			[3]string{"422 idempotency_conflict k1", "409 idempotency_conflict", "400 idempotency_error k1"}},
		{"another query", request{user: "ann", key: "k1", body: body, path: "/checkout_sessions?a=1"},
			[3]string{"201 replayed k1", "201 replayed", "400 idempotency_error k1"}},
		{"another media type", request{user: "ann", key: "k1", body: body, media: "+x"},
			[3]string{"201 replayed k1", "201 replayed", "400 idempotency_error k1"}},
		{"another path", request{user: "ann", key: "k1", body: body, path: "/checkout_sessions/1/cancel"},
			[3]string{"201 ran k1", "201 ran", "400 idempotency_error k1"}},
		{"another user", request{user: "bob", key: "k1", body: body}, [3]string{"201 ran k1", "201 ran", "201 ran k1"}},
		{"a quoted key is another", request{user: "ann", key: `"k1"`, body: body},
			[3]string{`201 ran "k1"`, "201 ran", `201 ran "k1"`}},
		{"no key", request{user: "ann", body: body}, [3]string{"400 idempotency_key_required", "201 ran", "201 ran"}},
		{"no key and no user", request{body: body}, [3]string{"400 idempotency_key_required", "201 ran", "201 ran"}},
		{"no user", request{key: "k1", body: body}, [3]string{"401 user_unknown k1", "401 user_unknown", "401 user_unknown k1"}},
		{"a long key", request{user: "ann", key: strings.Repeat(long, 16), body: body},
			[3]string{"400 idempotency_key_invalid", "400 idempotency_key_invalid", "400 idempotency_key_invalid"}},
		{"a 500", request{user: "ann", key: "k2", body: `{"status":500}`}, [3]string{"500 ran k2", "500 ran", "500 ran k2"}},
		{"again, a 500", request{user: "ann", key: "k2", body: `{"status":500}`}, [3]string{"500 ran k2", "500 ran", "500 replayed k2"}},
		{"a 404", request{user: "ann", key: "k3", body: `{"status":404}`}, [3]string{"404 ran k3", "404 ran", "404 ran k3"}},
		{"again, a 404", request{user: "ann", key: "k3", body: `{"status":404}`}, [3]string{"404 replayed k3", "404 ran", "404 replayed k3"}},
		{"a PUT", request{method: http.MethodPut, user: "ann", key: "k4", body: body}, [3]string{"201 ran", "201 ran", "201 ran"}},
		{"again, a PUT", request{method: http.MethodPut, user: "ann", key: "k4", body: body}, [3]string{"201 ran", "201 replayed", "201 ran"}},
		{"a PATCH", request{method: http.MethodPatch, user: "ann", key: "k5", body: body}, [3]string{"201 ran", "201 ran", "201 ran"}},
		{"again, a PATCH", request{method: http.MethodPatch, user: "ann", key: "k5", body: body}, [3]string{"201 ran", "201 ran", "201 ran"}},
	} {
		for i, s := range shops {
			before := s.runs.Load()
			got := result(s.send(c.send))
			if ran := s.runs.Load() > before; got != c.want[i] || ran != strings.Contains(got, " ran") {
				t.Errorf("%v: %s: got %s, ran %t, want %s", profiles[i], c.what, got, ran, c.want[i])
			}
		}
	}
}

// A duplicate of a request in flight gets 409 with Retry-After, and nothing runs.
func TestInFlight(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"409 idempotency_in_flight k1", "409 idempotency_in_flight", "409 idempotency_key_in_use k1"} {
		s := open(t, newLocker(t), profiles[i])
		s.hold = make(chan struct{})
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- s.send(request{user: "ann", key: "k1", body: body}) }()
		<-s.entered
		w := s.send(request{user: "ann", key: "k1", body: body})
		if got := result(w); got != want || w.Header().Get("Retry-After") != "1" || w.Header().Get("X-Should-Retry") != "true" {
			t.Errorf("%v: got %s, %v, want %s", profiles[i], got, w.Header(), want)
		}
		close(s.hold)
		if got := (<-done).Code; got != http.StatusCreated || s.runs.Load() != 1 {
			t.Errorf("%v: the first got %d, %d runs", profiles[i], got, s.runs.Load())
		}
	}
}

// Without Redis nothing runs.
//
// fault: Redis cannot be reached -> 503 in every profile
func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"503 store_unavailable k1", "503 store_unavailable", "503 store_unavailable k1"} {
		server := redistest.Mini(t)
		locker := lock.New(server.Client(t), "test", lock.WithOpTimeout(100*time.Millisecond))
		if err := locker.Close(t.Context()); err != nil { // as if Redis did not answer
			t.Fatal(err)
		}
		s := open(t, locker, profiles[i])
		if got := result(s.send(request{user: "ann", key: "k1", body: body})); got != want || s.runs.Load() != 0 {
			t.Errorf("%v: got %s, %d runs, want %s", profiles[i], got, s.runs.Load(), want)
		}
	}
}

// An option after the profile's overrides it, or adds to it.
func TestOptions(t *testing.T) {
	t.Parallel()
	post := func(status int) request {
		return request{user: "ann", key: "k1", body: fmt.Sprintf(`{"status":%d}`, status)}
	}
	put := func(body string) request { return request{method: http.MethodPut, user: "ann", key: "k1", body: body} }
	nothing := middleware.WithNothingHappened(func(status int, _ http.Header) bool { return status == http.StatusAccepted })
	for what, c := range map[string]struct {
		profile profile.Profile
		option  middleware.Option
		send    []request
		want    []string
	}{
		"ACP, a status":     {profile.ACP(), middleware.WithProblemStatus("key-reused", 409), []request{post(201), post(202)}, []string{"201 ran k1", "409 idempotency_conflict k1"}},
		"ACP, a method":     {profile.ACP(), middleware.WithMethods(http.MethodPut), []request{{user: "ann"}, put(body), put(body)}, []string{"201 ran", "201 ran k1", "201 replayed k1"}},
		"Stripe, each once": {profile.Stripe(), middleware.WithAtMostOnce(), []request{post(500), post(500)}, []string{"500 ran k1", "500 replayed k1"}},
		"ACP, nothing":      {profile.ACP(), nothing, []request{post(202), post(202), post(404), post(404)}, []string{"202 ran k1", "202 ran k1", "404 ran k1", "404 replayed k1"}},
		"UCP, nothing":      {profile.UCP(), nothing, []request{post(202), post(202), post(201), post(201)}, []string{"202 ran", "202 ran", "201 ran", "201 replayed"}},
		"Stripe, nothing":   {profile.Stripe(), nothing, []request{post(202), post(202), post(500), post(500)}, []string{"202 ran k1", "202 ran k1", "500 ran k1", "500 replayed k1"}},
	} {
		s := open(t, newLocker(t), c.profile, c.option)
		for i, want := range c.want {
			if got := result(s.send(c.send[i])); got != want {
				t.Errorf("%s: request %d got %s, want %s", what, i+1, got, want)
			}
		}
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(){
		"middleware.WithAtMostOnce: cannot be kept with WithoutServerErrors, which profile.ACP sets": func() {
			open(t, newLocker(t), profile.ACP(), middleware.WithAtMostOnce())
		},
		"profile.Profile.Key: user is nil": func() { profile.UCP().Key(nil) },
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
}

// A user Func that finds nothing is no missing key, and an operator can make the key of each profile.
func TestKey(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPost, "/checkout_sessions?a=1", nil)
	r.Header.Set("Idempotency-Key", `"k1"`)
	r.Header.Set("X-Account", "a1")
	for _, p := range profiles {
		if _, err := p.Key(keyfunc.Query("user"))(r); !errors.Is(err, keyfunc.ErrNoUser) || errors.Is(err, keyfunc.ErrMissing) {
			t.Errorf("%v: no user: %v", p, err)
		}
		empty := func(*http.Request) (string, error) { return "", nil }
		if _, err := p.Key(empty)(r); !errors.Is(err, keyfunc.ErrNoUser) {
			t.Errorf("%v: an empty user: %v", p, err)
		}
		got, err := p.Key(keyfunc.Header("X-Account"))(r)
		want := keyfunc.StandardKey("a1", http.MethodPost, "/checkout_sessions", `"k1"`)
		if p.String() == "Stripe v1" {
			want = keyfunc.ComposedKey(`"k1"`, "a1")
		}
		if err != nil || got != want {
			t.Errorf("%v: %q, %v, want %q", p, got, err, want)
		}
	}
}
