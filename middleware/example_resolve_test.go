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
func ExampleResolve() {
	locker, server := startLocker()
	defer server.stop()
	options := []middleware.Option{middleware.WithAtMostOnce(), middleware.WithRetention(7 * 24 * time.Hour)}
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		middleware.FromContext(r.Context()).Unknown() // a timeout: nobody knows whether the provider got it
		w.WriteHeader(http.StatusBadGateway)
	})
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), options...)(pay)

	post(once, "8e03978e", `{"amount":1250}`)
	server.FastForward(time.Minute)
	post(once, "8e03978e", `{"amount":1250}`) // a retry: the outcome is unknown

	ctx := context.Background()
	storageKey := locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "8e03978e"))
	info, err := locker.Inspect(ctx, storageKey)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("it is", info.State)
	paid := middleware.Responded(http.StatusCreated, http.Header{"Location": {"/payments/7"}}, []byte(`{"id":7}`))
	if err := middleware.Resolve(ctx, locker, storageKey, info.Token, paid, options...); err != nil {
		fmt.Println("failed:", err)
	}
	post(once, "8e03978e", `{"amount":1250}`)
	// Output:
	// 502
	// 409
	// it is abandoned
	// 201 replayed
}
