package middleware_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// Before 409 and 422 are switched on for a live API, shadow shows who would get them. This client uses one key for all of
// its payments.
func ExampleWithShadow() {
	locker, server := startLocker()
	defer server.stop()

	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(), middleware.WithAtMostOnce(), // as it is going to be
		middleware.WithShadow(),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) {
			fmt.Println("would have been:", e.Outcome, e.Status)
		}))
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))

	post(pay, "my-shop", `{"amount":1250}`)
	post(pay, "my-shop", `{"amount":1250}`)
	post(pay, "my-shop", `{"amount":99}`)
	post(pay, "", `{"amount":99}`)
	// Output:
	// would have been: executed 201
	// 201
	// would have been: replayed 201
	// 201
	// would have been: reused 422
	// 201
	// would have been: missing-key 400
	// 201
}
