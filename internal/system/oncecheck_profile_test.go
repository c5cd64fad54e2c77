package system_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
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

// askCheckout asks the example by the rules of a profile.
func askCheckout(name, path string, optional ...string) func(*testing.T, asker) {
	return func(t *testing.T, a asker) {
		t.Parallel()
		server := &service{binary: build(t, "../../examples/more/checkout"), addr: freeAddr(t)}
		server.args = []string{"-addr", server.addr, "-profile", name, "-db", "sqlite:" + filepath.Join(t.TempDir(), "shop.db"), "-op-timeout", "20s"}
		server.start(t)
		sessions := "http://" + server.addr + path
		a.askRight(t, sessions, slices.Concat(unasked, optional, []string{"once/instances*", "errors/5xx-not-stored", "store/*", "crash/*"}),
			"-profile", name, "-H", "Authorization: Bearer ann", "-H2", "Authorization: Bearer bob", "-slow", "delay=1s",
			"-d", `{"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur","number":{{n}}}`, "-effects", sessions)
	}
}

// askPayments asks a handler behind the middleware with a profile, which also fails before its payment when it is told to.
func askPayments(name string, rules profile.Profile, optional ...string) func(*testing.T, asker) {
	return func(t *testing.T, a asker) {
		t.Parallel()
		locker := lock.New(redistest.Start(t).Client(t), name, lock.WithOpTimeout(30*time.Second))
		var payments atomic.Int64
		mux := http.NewServeMux()
		mux.HandleFunc("GET /payments", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, payments.Load()) })
		mux.Handle("POST /payments", middleware.Idempotency(locker, rules.Key(keyfunc.BasicUser()), rules.Option())(takePayments(&payments)))
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		url := server.URL + "/payments"
		// What fails is asked here.
		asked := slices.DeleteFunc(slices.Clone(unasked), func(id string) bool { return strings.HasPrefix(id, "errors/") })
		a.askRight(t, url, slices.Concat(asked, optional, []string{"once/instances*", "store/*", "crash/*"}),
			"-profile", name, "-effects", url, "-fail", "fail")
	}
}

// takePayments counts payments.
func takePayments(payments *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var order struct{ Amount float64 }
		err := json.NewDecoder(r.Body).Decode(&order)
		query := r.URL.Query()
		if query.Has("delay") {
			time.Sleep(time.Second)
		}
		switch {
		case err != nil:
			http.Error(w, "no order", http.StatusBadRequest)
		case query.Has("fail"):
			http.Error(w, "the bank does not answer", http.StatusInternalServerError)
		default:
			payments.Add(1)
			id := rand.Text()
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/payments/"+id)
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"id":%q}`, id)
		}
	})
}
