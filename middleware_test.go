package onceguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Clients send the same request six times at once, three times to each instance. Redis gets one key for each stored
// response, and neither the client's keys nor users in plain text.
//
// conformance: 15, 16, 24, 25, 27, 29, 32, 35
func TestPaymentIsMadeOnce(t *testing.T) {
	t.Parallel()
	stored := regexp.MustCompile(`^payments:\{[0-9a-f]{4}\}[0-9a-f]{64}$`)
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		s := newService(t, b)
		const together = 30
		rounds := redistest.Rounds(3, 10)
		for round := range rounds {
			var batch sync.WaitGroup
			for i := range together {
				batch.Go(func() { s.sixAtOnce(t, fmt.Sprintf("raw-key-%d-%d", round, i)) })
			}
			batch.Wait()
		}
		keys := b.Keys(t)
		if want := 2 * rounds * together; len(keys) != want {
			t.Errorf("%d keys in Redis, want one for each of %d payments", len(keys), want)
		}
		for _, key := range keys {
			value, _ := b.Raw(t, key)
			if !stored.MatchString(key) || strings.Contains(value, "raw-key") || strings.Contains(value, "user-") {
				t.Errorf("in Redis: %q = %q", key, value)
			}
		}
	})
}

func (s *service) sixAtOnce(t *testing.T, key string) {
	answers := make(chan answer, 6)
	for range 3 {
		for _, url := range s.urls {
			go func() { answers <- s.pay(t, url, "user-ann", key, 1250) }()
		}
	}
	for range 5 { // the sixth is the one that runs
		duplicate := <-answers
		duplicate.refused(t, http.StatusConflict, "in-flight")
		if after, err := strconv.Atoi(duplicate.header.Get("Retry-After")); err != nil || after < 1 {
			t.Errorf("Retry-After %q, want at least 1 second", duplicate.header.Get("Retry-After"))
		}
	}
	s.pay(t, s.urls[0], "user-ann", key, 1).refused(t, http.StatusUnprocessableEntity, "key-reused")
	close(s.gate(key))
	first := <-answers
	first.is(t, http.StatusCreated, "")
	for _, url := range s.urls {
		s.pay(t, url, "user-ann", key, 1).refused(t, http.StatusUnprocessableEntity, "key-reused")
		replay := s.pay(t, url, "user-ann", key, 1250)
		replay.is(t, http.StatusCreated, "true")
		if replay.body != first.body || replay.header.Get("Content-Type") != first.header.Get("Content-Type") {
			t.Errorf("replayed %v %s, want %v %s", replay.header, replay.body, first.header, first.body)
		}
	}
	stranger := s.pay(t, s.urls[1], "user-bob", key, 1250)
	stranger.is(t, http.StatusCreated, "")
	if stranger.body == first.body || s.ran(key) != 2 {
		t.Errorf("%d runs for two users; bob got %s, ann %s", s.ran(key), stranger.body, first.body)
	}
}

// The handler panics, and the connection breaks without a response. If the connection was a reused one, Go's own
// http.Transport retries a POST with an Idempotency-Key at once.
//
// conformance: 52
func TestTransportRetriesByItself(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		s := newService(t, b)
		idle, err := s.client.Get(s.urls[0] + "/payments") // leaves an idle connection for reuse
		if err != nil {
			t.Fatal(err)
		}
		_ = idle.Body.Close()
		var reused []bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(c httptrace.GotConnInfo) { reused = append(reused, c.Reused) },
		})
		s.do(t, s.payment(t, s.urls[0], "ann", "panics", 1250).WithContext(ctx)).refused(t, http.StatusConflict, "in-flight")
		if !slices.Equal(reused, []bool{true, false}) {
			t.Errorf("connections that were reused: %v, want the first, and then a new one", reused)
		}
		if got := s.ran("panics"); got != 1 {
			t.Errorf("%d runs, want 1", got)
		}

		// The lease is not released and expires. By default a later retry runs again.
		b.Elapse(t, lease)
		s.pay(t, s.urls[0], "ann", "panics", 1250).is(t, http.StatusCreated, "")
		s.pay(t, s.urls[1], "ann", "panics", 1250).is(t, http.StatusCreated, "true")
	})
}

// lease is the length of a lease that is not renewed.
const lease = 30 * time.Second

// service is two instances of a payments API on one Redis. Like two processes, each has a Redis client, a Locker and an
// HTTP server of its own.
type service struct {
	urls   []string
	client *http.Client

	mu    sync.Mutex
	runs  map[string]int           // by idempotency key, over all users
	gates map[string]chan struct{} // for which the runs wait, by key
}

func newService(t *testing.T, b redistest.Backend) *service {
	t.Helper()
	s := &service{runs: map[string]int{}, gates: map[string]chan struct{}{}}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport, Timeout: time.Minute} // only a failing test waits this long
	for range 2 {
		locker := lock.New(b.Client(t), "payments", lock.WithTTL(lease), lock.WithOpTimeout(lease))
		once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))
		server := httptest.NewServer(once(http.HandlerFunc(s.serve)))
		s.urls = append(s.urls, server.URL)
		t.Cleanup(func() {
			server.Close()
			if err := locker.Close(context.Background()); err != nil {
				t.Errorf("closing the locker: %v", err)
			}
		})
	}
	return s
}

// serve makes a payment once the gate of its key is open. The first one under the key "panics" panics.
func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		return
	}
	key := strings.Trim(r.Header.Get("Idempotency-Key"), `"`)
	s.mu.Lock()
	s.runs[key]++
	n := s.runs[key]
	s.mu.Unlock()
	switch {
	case key != "panics":
		<-s.gate(key)
	case n == 1:
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q}`, uuid.NewString())
}

func (s *service) ran(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[key]
}

func (s *service) gate(key string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[key] == nil {
		s.gates[key] = make(chan struct{})
	}
	return s.gates[key]
}

// payment returns a request for a payment.
func (s *service) payment(t *testing.T, url, user, key string, amount int) *http.Request {
	r, err := http.NewRequest(http.MethodPost, url+"/payments", strings.NewReader(fmt.Sprintf(`{"amount":%d}`, amount)))
	if err != nil {
		t.Error(err)
	}
	r.SetBasicAuth(user, "")
	r.Header.Set("Idempotency-Key", strconv.Quote(key))
	return r
}

func (s *service) pay(t *testing.T, url, user, key string, amount int) answer {
	return s.do(t, s.payment(t, url, user, key, amount))
}

// answer is a response whose body was read.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends the request. It may be called from any goroutine. After an error the answer is empty.
func (s *service) do(t *testing.T, r *http.Request) answer {
	response, err := s.client.Do(r)
	if err != nil {
		t.Errorf("%s %s: %v", r.Method, r.URL, err)
		return answer{}
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Errorf("%s %s: reading the response: %v", r.Method, r.URL, err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

// is checks the status and the Idempotent-Replayed header.
func (a answer) is(t *testing.T, status int, replayed string) {
	t.Helper()
	if got := a.header.Get("Idempotent-Replayed"); a.status != status || got != replayed {
		t.Errorf("got %d, Idempotent-Replayed %q, %s; want %d, %q", a.status, got, a.body, status, replayed)
	}
}

// refused checks that the answer is the problem with this name.
func (a answer) refused(t *testing.T, status int, name string) {
	t.Helper()
	a.is(t, status, "")
	var p middleware.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Type != "urn:onceguard:problem:"+name || p.Status != status {
		t.Errorf("got %s, want the problem %s", a.body, name)
	}
}
