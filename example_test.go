package onceguard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func Example() {
	server := miniredis.NewMiniRedis() // stands for your Redis
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	addr := server.Addr()

	client := redis.NewClient(&redis.Options{Addr: addr})
	locker := lock.New(client, "payments-api") // the namespace: one per service
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(),           // a payment without a key is 400
		middleware.WithAtMostOnce(),         // do not run again what may have happened (for 24 h)
		middleware.WithWait(10*time.Second), // a second click waits for the first one's response
	)

	payments := 0
	pay := func(w http.ResponseWriter, _ *http.Request) {
		payments++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", payments)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(http.HandlerFunc(pay)))

	for range 2 { // the response to the first one is lost
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":1250}`))
		r.SetBasicAuth("ann", "secret")
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}

	if err := errors.Join(locker.Close(context.Background()), client.Close()); err != nil {
		panic(err)
	}
	// Output:
	// 201 payment 1, replayed: ""
	// 201 payment 1, replayed: "true"
}
