package profile_test

import (
	"context"
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
	"github.com/onceguard/onceguard/profile"
)

// startLocker stands for a lock.New at your program's start.
func startLocker() (locker *lock.Locker, stop func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker = lock.New(client, "shop", lock.WithOpTimeout(30*time.Second))
	return locker, func() {
		_ = locker.Close(context.Background())
		_ = client.Close()
		server.Close()
	}
}

// post sends a request of the user ann, and prints the answer.
func post(h http.Handler, key, body string) {
	r := httptest.NewRequest(http.MethodPost, "/checkout_sessions", strings.NewReader(body))
	r.SetBasicAuth("ann", "")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
}

func created(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"id":"cs_1"}`)
}

type callerKey struct{}

// authenticate stands for your authentication.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := r.BasicAuth()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, name)))
	})
}

func caller(ctx context.Context) string { return ctx.Value(callerKey{}).(string) }

func ExampleACP() {
	locker, stop := startLocker()
	defer stop()
	create, mux := http.HandlerFunc(created), http.NewServeMux()

	acp := profile.ACP() // or UCP, or Stripe
	once := middleware.Idempotency(locker, acp.Key(keyfunc.User(caller)), acp.Option())
	mux.Handle("POST /checkout_sessions", authenticate(once(create)))

	post(mux, "8e03978e", `{"currency":"eur","total":10}`)
	post(mux, "8e03978e", `{"total":10.0, "currency":"eur"}`)
	post(mux, "8e03978e", `{"currency":"usd","total":10}`)
	post(mux, "", `{}`)
	// Output:
	// 201 {"id":"cs_1"}
	// 201 {"id":"cs_1"}
	// 422 {"type":"invalid_request","code":"idempotency_conflict","message":"This idempotency key was used for another request. Use a new key for a new request."}
	// 400 {"type":"invalid_request","code":"idempotency_key_required","message":"This operation must carry an idempotency key in the header Idempotency-Key, so that it can be repeated safely."}
}

func ExampleStripe() {
	locker, stop := startLocker()
	defer stop()
	stripe := profile.Stripe()
	once := middleware.Idempotency(locker, stripe.Key(keyfunc.BasicUser()), stripe.Option(),
		middleware.WithAtMostOnce()) // after a crash, no retry runs

	create := once(http.HandlerFunc(created))
	post(create, "8e03978e", "amount=10")
	post(create, "8e03978e", "amount=20")
	// Output:
	// 201 {"id":"cs_1"}
	// 400 {"error":{"type":"idempotency_error","message":"This idempotency key was used for another request. Use a new key for a new request."}}
}
