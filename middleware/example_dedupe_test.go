package middleware_test

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
)

// A client that knows nothing of idempotency keys is protected from its user's double click: for some seconds, the same
// body from the same user is the same request. That is also the trap: two equal orders that are both meant must be
// further apart than the retention, or differ in something.
func ExampleIdempotency_withoutAKey() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locker := lock.New(client, "shop")
	defer locker.Close(context.Background())

	key := keyfunc.Compose(keyfunc.Route(), keyfunc.BasicUser(), keyfunc.Body())
	once := middleware.Idempotency(locker, key, middleware.WithRetention(5*time.Second))

	orders := 0
	handler := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		fmt.Fprintf(w, "order %d", orders)
	}))
	order := func(item string) {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("item="+item))
		r.SetBasicAuth("ann", "")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(item, "->", w.Body)
	}
	order("tea")
	order("tea") // the second click
	order("milk")
	server.FastForward(5 * time.Second)
	order("tea") // tea is out again
	// Output:
	// tea -> order 1
	// tea -> order 1
	// milk -> order 2
	// tea -> order 3
}
