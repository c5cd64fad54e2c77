package promonce_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/onceguard/onceguard/contrib/promonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// shop is a service whose handler does what the request's X-Do says: nothing, unknown, hang, fail, or accept.
type shop struct {
	*chi.Mux
	locker  *lock.Locker
	running chan struct{} // a hanging handler has begun
	release chan struct{} // and ends when it gets a value
}

// theKey is the header as it stands, so that a test can find the key in Redis.
func theKey(r *http.Request) (string, error) {
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		return key, nil
	}
	return "", &keyfunc.MissingError{In: "header", Name: "Idempotency-Key"}
}

func newShop(t *testing.T, reg prometheus.Registerer, server *redistest.Server, namespace string) *shop {
	t.Helper()
	s := &shop{chi.NewRouter(), newLocker(t, server.Client(t), namespace), make(chan struct{}), make(chan struct{})}
	observer := middleware.WithObserver(promonce.New(reg, s.locker).Observe)
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Do") {
		case "unknown":
			middleware.FromContext(r.Context()).Unknown()
		case "hang":
			s.running <- struct{}{}
			<-s.release
		case "fail":
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case "accept":
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	s.With(middleware.Idempotency(s.locker, theKey, observer)).Post("/payments", handler)
	s.With(middleware.Idempotency(s.locker, theKey, observer, middleware.WithWait(time.Minute))).Post("/transfers", handler)
	s.With(middleware.Idempotency(s.locker, theKey, observer, middleware.WithFailOpen())).Post("/orders", handler)
	s.With(middleware.Idempotency(s.locker, theKey, observer, middleware.WithShadow())).Post("/refunds", handler)
	s.With(middleware.Idempotency(s.locker, theKey, observer, middleware.WithAtMostOnce())).Post("/charges", handler)
	s.With(middleware.Idempotency(s.locker, theKey, observer, middleware.WithJournal(unused{namespace: namespace}))).Post("/refunds/late", handler)
	return s
}

// unused is a transactional journal that no handler uses.
type unused struct {
	journal.Journal
	namespace string
}

func (u unused) Namespace() string { return u.namespace }
func (unused) IsIntent() bool      { return false }

func (unused) Begin(context.Context, journal.Run) (journal.Entry, error) { return journal.Entry{}, nil }

func (unused) End(_ context.Context, r journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	return journal.Entry{State: journal.Done, Token: r.Token, Record: record, Left: keep}, nil
}

func (s *shop) send(path, key, body, do string) int {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Do", do)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

// wants sends n requests at the same time and fails if one gets another status.
func (s *shop) wants(t *testing.T, status, n int, path, key, body string) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if got := s.send(path, key, body, ""); got != status {
				t.Errorf("%s %q: %d, want %d", path, key, got, status)
			}
		})
	}
	all.Wait()
}

// hang begins a run, and returns what ends it and gives its status.
func (s *shop) hang(path, key string) (end func() int) {
	status := make(chan int, 1)
	go func() { status <- s.send(path, key, "a", "hang") }()
	<-s.running
	return func() int {
		s.release <- struct{}{}
		return <-status
	}
}

// fault: every fault that has an alert, made on a real Redis and seen by a real Prometheus: with classic buckets, and with
// native ones. No alert fires before, every one fires, all end when the faults are over, and every panel has data.
func TestEveryAlertFires(t *testing.T) {
	redistest.Long(t)
	server, reg := redistest.Start(t), prometheus.NewRegistry()
	payments, ledger := newShop(t, reg, server, "payments-api"), newShop(t, reg, server, "ledger")
	scraped := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	t.Cleanup(scraped.Close)
	target := strings.TrimPrefix(scraped.URL, "http://")
	classic, native := startPrometheus(t, target), startPrometheus(t, target, "--enable-feature=native-histograms")
	fired := func(alerts ...string) {
		t.Helper()
		classic.fired(t, alerts...)
		native.fired(t, alerts...)
	}

	for i := range 20 {
		payments.wants(t, http.StatusCreated, 1, "/payments", string(rune('a'+i)), "a")
		payments.wants(t, http.StatusCreated, 1, "/payments", string(rune('a'+i)), "a")
	}
	payments.wants(t, http.StatusCreated, 10, "/refunds", "", "a") // in shadow: no alert
	const quiet = `count_over_time(onceguard:requests_all:increase5m[1h]) unless on() max_over_time(ALERTS[1h])`
	classic.await(t, quiet, true)
	native.await(t, quiet, true)

	faultsOfClients(t, payments, fired)
	died(t, newShop(t, prometheus.NewRegistry(), server, "payments-api"), payments, fired)
	faultsOfRedis(t, server, payments, ledger, fired)

	server.Restart(t)
	for _, p := range []*prometheusServer{classic, native} {
		for _, r := range readRules(t) {
			if r.Alert != "" {
				p.fired(t, strings.TrimPrefix(r.Alert, "Onceguard"))
			}
		}
		p.await(t, `ALERTS{alertstate="firing"}`, false)
		for _, q := range readDashboard(t, "10m") {
			if len(p.query(t, q.expr)) == 0 {
				t.Errorf("%s has no data: %s", q.panel, q.expr)
			}
		}
	}
	if found := native.query(t, `onceguard_handler_duration_seconds_bucket`); len(found) > 0 {
		t.Errorf("classic buckets where native ones were asked for: %v", found)
	}
}

// faultsOfClients are those of clients and handlers.
func faultsOfClients(t *testing.T, payments *shop, fired func(alerts ...string)) {
	t.Helper()
	payments.wants(t, http.StatusUnprocessableEntity, 10, "/payments", "a", "b")
	fired("KeysReused")

	end := payments.hang("/payments", "slow")
	payments.wants(t, http.StatusConflict, 20, "/payments", "slow", "a")
	fired("InFlightConflicts")
	wantStatus(t, end(), http.StatusCreated)

	var crowd sync.WaitGroup
	var ends []func() int
	for i := range 10 { // one key may not have more than a tenth of all waiters
		key := "crowded " + strconv.Itoa(i)
		ends = append(ends, payments.hang("/transfers", key))
		crowd.Go(func() { payments.wants(t, http.StatusCreated, 85, "/transfers", key, "a") })
	}
	fired("WaitersNearLimit")
	for _, end := range ends {
		crowd.Go(func() { wantStatus(t, end(), http.StatusCreated) })
	}
	crowd.Wait()

	payments.send("/payments", "who-knows", "a", "unknown")
	fired("UnknownOutcomes")

	payments.wants(t, http.StatusCreated, 10, "/payments", "", "a")
	fired("UnprotectedRequests")

	payments.wants(t, http.StatusCreated, 1, "/refunds", "differs", "a")
	payments.send("/refunds", "differs", "a", "accept")

	payments.wants(t, http.StatusCreated, 1, "/refunds/late", "late", "a")
	fired("OutsideTransaction")

	payments.send("/charges", "failed", "a", "fail")
	fired("ErrorsStored")
}

// died is the fault of a process that has died with a run. Nobody reads its registry any more.
func died(t *testing.T, process, payments *shop, fired func(alerts ...string)) {
	t.Helper()
	process.send("/charges", "orphan", "a", "unknown")
	if claim, err := payments.locker.Wait(t.Context(), "orphan"); err != nil || claim.State != lock.Abandoned {
		t.Errorf("the run has left %v, %v", claim.State, err)
	}
	payments.wants(t, http.StatusConflict, 1, "/charges", "orphan", "a")
	fired("RunsDied")
}

// faultsOfRedis are those of what Redis holds, and of a Redis that does not answer. It does not when this returns.
func faultsOfRedis(t *testing.T, server *redistest.Server, payments, ledger *shop, fired func(alerts ...string)) {
	t.Helper()
	overwrite(t, server, payments.locker.StorageKey("a"))
	payments.wants(t, http.StatusInternalServerError, 1, "/payments", "a", "a")
	fired("RecordsUnreadable")

	end := payments.hang("/payments", "forgotten")
	server.FlushAll(t)
	payments.wants(t, http.StatusCreated, 1, "/payments", "forgotten", "a")
	wantStatus(t, end(), http.StatusCreated)
	fired("KeyTaken", "LeasesLost")

	pending, givenUp := payments.hang("/payments", "cut-off"), ledger.hang("/payments", "cut-off")
	server.Pause(t) // a claim is sent, and may arrive
	ledger.wants(t, http.StatusServiceUnavailable, 1, "/charges", "unanswered", "a")
	server.Kill(t)
	payments.wants(t, http.StatusServiceUnavailable, 10, "/payments", "refused", "a")
	payments.wants(t, http.StatusCreated, 1, "/orders", "open", "a")
	wantStatus(t, pending(), http.StatusCreated)
	wantStatus(t, givenUp(), http.StatusCreated)
	fired("StoreUnavailable", "FailOpen", "SettlesPending")
	closing, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := ledger.locker.Close(closing); err == nil {
		t.Error("Close: no error, although a response is given up")
	}
	fired("SettlesGivenUp", "ReleasesGivenUp")
}

func wantStatus(t *testing.T, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("status %d, want %d", got, want)
	}
}

// overwrite puts another program's value in the place of a record.
func overwrite(t *testing.T, server *redistest.Server, key string) {
	t.Helper()
	if err := server.Client(t).Set(t.Context(), key, "another program's", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
}
