package echo5once_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/echo5once"
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

	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	locker := lock.New(client, "payments-api")
	once := echo5once.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithRequired())

	e := echo.New()
	e.Use(echomiddleware.Recover(), echomiddleware.BasicAuth(func(_ *echo.Context, user, password string) (bool, error) {
		return user == "ann" && password == "secret", nil
	}))
	payments := 0
	e.POST("/payments", func(c *echo.Context) error {
		payments++
		return c.JSON(http.StatusCreated, map[string]any{"payment": payments})
	}, once)
	for range 2 { // a double click
		post(e, "/payments")
	}

	// When the server stops: http.Server.Shutdown first, then
	if err := errors.Join(locker.Close(context.Background()), client.Close()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 201 {"payment":1}
	// 201 {"payment":1} replayed
}

// An error that a handler returns is stored as echo's HTTPErrorHandler writes it.
func ExampleIdempotency() {
	locker, stop := startLocker()
	defer stop()
	once := echo5once.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))

	e := echo.New()
	orders := e.Group("/orders", once)
	orders.POST("/:order/cancel", func(c *echo.Context) error {
		fmt.Println("looking for order", c.Param("order"))
		return echo.NewHTTPError(http.StatusConflict, "already shipped")
	})
	for range 2 {
		post(e, "/orders/17/cancel")
	}
	// Output:
	// looking for order 17
	// 409 {"message":"already shipped"}
	// 409 {"message":"already shipped"} replayed
}

func ExampleUser() {
	locker, stop := startLocker()
	defer stop()
	user := func(c *echo.Context) string { // never a token
		id, _ := c.Get("account").(string)
		return id
	}
	once := echo5once.Idempotency(locker, keyfunc.Standard(echo5once.User(user)))

	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { // your authentication
		return func(c *echo.Context) error {
			c.Set("account", "acct-42")
			return next(c)
		}
	})
	e.POST("/payments", func(c *echo.Context) error { return c.String(http.StatusCreated, "paid") }, once)
	post(e, "/payments")
	// Output:
	// 201 paid
}

// startLocker returns a Locker on a Redis of its own.
func startLocker() (locker *lock.Locker, stop func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	locker = lock.New(client, "example")
	return locker, func() {
		_ = locker.Close(context.Background())
		_ = client.Close()
		server.Close()
	}
}

// post sends a request and prints the answer.
func post(h http.Handler, path string) {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	r.SetBasicAuth("ann", "secret")
	r.Header.Set("Idempotency-Key", "k1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	replayed := ""
	if w.Header().Get("Idempotent-Replayed") == "true" {
		replayed = " replayed"
	}
	fmt.Printf("%d %s%s\n", w.Code, trimmed(w), replayed)
}

// trimmed returns the body without the newline that JSON ends with.
func trimmed(w *httptest.ResponseRecorder) string {
	body := w.Body.String()
	if n := len(body); n > 0 && body[n-1] == '\n' {
		return body[:n-1]
	}
	return body
}
