package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// currentUser returns the stable id of the user that your authentication found.
func currentUser(ctx context.Context) string { return "user-42" }

// pay is your handler.
func pay(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "payment %d", payments.Add(1))
}

var payments atomic.Int64

func ExampleIdempotency() {
	payments.Store(0) // the tests may run more than once

	server := miniredis.NewMiniRedis() // stands for your Redis
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	addr := server.Addr()

	client := redis.NewClient(&redis.Options{Addr: addr})
	locker := lock.New(client, "payments-api")
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.User(currentUser)), middleware.WithRequired())

	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(http.HandlerFunc(pay)))

	for range 2 { // a double click
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":1250}`))
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}

	// When the server stops: http.Server.Shutdown first, then
	if err := errors.Join(locker.Close(context.Background()), client.Close()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 201 payment 1, replayed: ""
	// 201 payment 1, replayed: "true"
}

// A double click on a slow button: the second click waits for the first one's order, and both end on the same page.
func ExampleWithWait() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithWait(10*time.Second))

	order := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("an order is placed")
		time.Sleep(100 * time.Millisecond)
		http.Redirect(w, r, "/orders/1", http.StatusSeeOther)
	}))
	var clicks sync.WaitGroup
	for range 2 {
		clicks.Go(func() { post(order, "8e03978e", `{"item":"coffee"}`) })
	}
	clicks.Wait()
	// Unordered output:
	// an order is placed
	// 303
	// 303 replayed
}
