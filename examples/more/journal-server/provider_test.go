package main

import (
	"database/sql"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// fault is what goes wrong at a bank.
type fault int32

const (
	works        fault = iota
	holdsRequest       // until the service is killed; it never charges
	holdsReply         // until the service is killed; it has charged
	dropsRequest       // closes the connection instead of charging
	dropsReply         // closes the connection when it has charged
)

// bank is a fake provider in the test's process, so it outlives the service.
type bank struct {
	*httptest.Server
	db    *sql.DB
	fault atomic.Int32
	held  chan bool // gets a value for each held request
}

func openBank(t *testing.T, f fault) *bank {
	t.Helper()
	d, err := openSQLite(filepath.Join(t.TempDir(), "bank.db"))
	if err != nil {
		t.Fatal(err)
	}
	fake, err := newFakeProvider(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{db: d.DB, held: make(chan bool, 100)}
	b.fault.Store(int32(f))
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := fault(b.fault.Load())
		answer := httptest.NewRecorder()
		if now != holdsRequest && now != dropsRequest {
			fake.ServeHTTP(answer, r)
		}
		switch now {
		case works:
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
		case dropsRequest, dropsReply:
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.Copy(io.Discard, r.Body) // net/http notices the end of a connection only after the body
			b.held <- true
			<-r.Context().Done()
		}
	}))
	t.Cleanup(func() {
		b.Close()
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// await returns when the bank holds a request.
func (b *bank) await(t *testing.T) {
	t.Helper()
	select {
	case <-b.held:
	case <-time.After(patience):
		t.Fatal("the bank got no request")
	}
}

func (b *bank) wantCharges(t *testing.T, want int) {
	t.Helper()
	var got int
	if err := b.db.QueryRow("select count(*) from provider_charges").Scan(&got); err != nil || got != want {
		t.Errorf("the bank has charged %d times, %v; want %d", got, err, want)
	}
}

func TestProviderAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"no receipt": {200, `{}`},
		"no JSON":    {200, `<html>`},
		"error":      {500, `{"receipt":"r1"}`},
		"not found":  {404, `no such route`}, // for a POST
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer h.Close()
			receipt, err := newProvider(h.URL).charge(t.Context(), "k", order{1250, "EUR"})
			if err == nil || err == errDeclined || err == errNoCharge || receipt != "" {
				t.Errorf("got %q, %v; want an error that leaves it open", receipt, err)
			}
		})
	}
}
