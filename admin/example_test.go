package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// A page that knows what the service has stored, and lets operators store a response for a request whose outcome is
// unknown.
func ExampleHandler() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locker := lock.New(client, "payments-api")
	defer locker.Close(context.Background())
	once := middleware.New(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithAtMostOnce())

	isOperator := func(r *http.Request) bool {
		user, _, ok := r.BasicAuth() // yours: it was authenticated before
		return ok && user == "olga"
	}
	audit := func(r *http.Request, e admin.Entry) error {
		user, _, _ := r.BasicAuth()
		if e.Done {
			fmt.Println(user, e.Action, e.Key, e.Reason, "error:", e.Err)
		}
		return nil // of your audit trail: without it nothing is done
	}
	mux := http.NewServeMux()
	mux.Handle("/internal/keys", admin.Handler(locker, isOperator, audit, admin.WithMiddleware(once), admin.WithResolve()))

	r := form("action", "inspect", "key", locker.StorageKey("k"))
	r.URL.Path = "/internal/keys"
	r.SetBasicAuth("olga", "")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output:
	// olga inspect payments-api:{2095}8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a  error: <nil>
	// 200
}
