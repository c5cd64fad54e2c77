package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "payer", Run: func(args []string, _ io.Reader, out io.Writer) error {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintln(out, listener.Addr())
		return run(listener, args[0], args[1], args[2])
	}})
}

// provider is a payment provider that pays once for each key. It holds back its answers while a test wants that.
type provider struct {
	*httptest.Server
	paid chan bool // gets a value after each request
	hold chan bool // closed: answers go out

	mu    sync.Mutex
	calls []string // the keys
}

func newProvider(t *testing.T) *provider {
	p := &provider{paid: make(chan bool, 100), hold: make(chan bool)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.calls = append(p.calls, r.Header.Get("Idempotency-Key"))
		p.mu.Unlock()
		p.paid <- true
		select {
		case <-p.hold:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "receipt-1")
	}))
	t.Cleanup(p.Server.Close)
	return p
}

func (p *provider) keys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// call sends a request to a payer, and returns its status, its body and whether it is a replay.
func call(t *testing.T, method, addr, body string) string {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+addr+"/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", "k1")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return fmt.Sprint(res.StatusCode, " ", strings.TrimSpace(string(text)), " ", res.Header.Get("Idempotent-Replayed"))
}

// waitForReceipt asks for the order until it is paid, or go test's own timeout.
func waitForReceipt(t *testing.T, addr string) {
	t.Helper()
	for got := ""; got != "200 ann 1250 receipt-1 "; {
		got = call(t, http.MethodGet, addr, "")
	}
}

// fault: a worker is killed when the provider has paid, and before it has the answer. Another one sends the same key, and
// gets the receipt.
func TestKilledWhilePaying(t *testing.T) {
	server, provider := redistest.Start(t), newProvider(t)
	database := filepath.Join(t.TempDir(), "orders.db")
	first := redistest.Run(t, "payer", server.Addr(), database, provider.URL)
	addr := first.Line(t)
	for i, want := range []string{"202 order taken ", "202 order taken true"} { // a double click
		if got := call(t, http.MethodPost, addr, "1250"); got != want {
			t.Errorf("call %d: %q, want %q", i, got, want)
		}
	}
	<-provider.paid
	first.Kill(t)
	close(provider.hold)
	server.Elapse(t, 10*time.Second) // the lease of the killed worker
	second := redistest.Run(t, "payer", server.Addr(), database, provider.URL).Line(t)
	waitForReceipt(t, second)
	if keys := provider.keys(); len(keys) != 2 || keys[0] != keys[1] || keys[0] == "" {
		t.Errorf("the provider got the keys %q, want the same twice", keys)
	}
}

// Two workers at a time: one pays.
func TestTwoWorkers(t *testing.T) {
	server, provider := redistest.Start(t), newProvider(t)
	database := filepath.Join(t.TempDir(), "orders.db")
	first := redistest.Run(t, "payer", server.Addr(), database, provider.URL).Line(t)
	call(t, http.MethodPost, first, "1250")
	<-provider.paid
	proxy := redistest.NewProxy(t, server.Addr())
	finds := proxy.HoldReply(redistest.Named("SET"))
	redistest.Run(t, "payer", proxy.Addr(), database, provider.URL)
	finds.Wait(t)
	finds.Lift()
	close(provider.hold)
	waitForReceipt(t, first)
	if keys := provider.keys(); len(keys) != 1 {
		t.Errorf("the provider got the keys %q, want one", keys)
	}
}
