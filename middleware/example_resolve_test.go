package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// A payment was sent to the provider, and the process died before the answer came. The provider's ledger says that it
// was made: from now on a retry gets the response that it would have got.
func ExampleMiddleware_Resolve() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.New(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithAtMostOnce(), middleware.WithRetention(7*24*time.Hour))
	pay := once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		middleware.FromContext(r.Context()).Unknown() // a timeout: nobody knows whether the provider got it
		w.WriteHeader(http.StatusBadGateway)
	}))

	post(pay, "8e03978e", `{"amount":1250}`)
	server.FastForward(time.Minute)
	post(pay, "8e03978e", `{"amount":1250}`) // a retry: the outcome is unknown

	ctx := context.Background()
	storageKey := locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "8e03978e"))
	found, err := once.Inspect(ctx, storageKey)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("it is", found.Redis.State)
	paid := middleware.Responded(http.StatusCreated, http.Header{"Location": {"/payments/7"}}, []byte(`{"id":7}`))
	if err := once.Resolve(ctx, storageKey, found.Redis.Token, paid); err != nil {
		fmt.Println("failed:", err)
	}
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// 502
	// 409
	// it is abandoned
	// 201 replayed
}

// What a retry would get, without the response itself: for an operator's tool.
func ExampleMiddleware_Inspect() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.New(locker, keyfunc.Standard(keyfunc.BasicUser()))
	pay := once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":7}`)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)

	storageKey := locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "8e03978e"))
	found, err := once.Inspect(context.Background(), storageKey)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println(found.Redis.State, found.Stored.Status, found.Stored.BodySize)
	// Output:
	// 201
	// settled 201 8
}
