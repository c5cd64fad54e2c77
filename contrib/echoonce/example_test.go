package echoonce_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/echoonce"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// currentUser returns the id that your authentication has found, and never a token.
func currentUser(c echo.Context) string {
	id, _ := c.Get("account").(string)
	return id
}

// An error that a handler returns is stored as echo's HTTPErrorHandler writes it.
func Example() {
	server := miniredis.NewMiniRedis() // stands for your Redis
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	locker := lock.New(client, "payments-api")
	once := echoonce.Idempotency(locker, keyfunc.Standard(echoonce.User(currentUser)), middleware.WithRequired())

	e := echo.New()
	e.Use(echomiddleware.Recover(), func(next echo.HandlerFunc) echo.HandlerFunc { // your authentication
		return func(c echo.Context) error {
			c.Set("account", "acct-42")
			return next(c)
		}
	})
	payments := 0
	e.POST("/payments", func(c echo.Context) error {
		payments++
		return c.JSON(http.StatusCreated, echo.Map{"payment": payments})
	}, once)
	orders := e.Group("/orders", once)
	orders.POST("/:order/cancel", func(c echo.Context) error {
		fmt.Println("looking for order", c.Param("order"))
		return echo.NewHTTPError(http.StatusConflict, "already shipped")
	})
	for _, path := range []string{"/payments", "/payments", "/orders/17/cancel", "/orders/17/cancel"} { // double clicks
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header.Set("Idempotency-Key", "key-of"+path)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, strings.TrimSpace(w.Body.String()), w.Header().Get("Idempotent-Replayed"))
	}

	// When the server stops: http.Server.Shutdown first, then
	if err := errors.Join(locker.Close(context.Background()), client.Close()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 201 {"payment":1}, replayed: ""
	// 201 {"payment":1}, replayed: "true"
	// looking for order 17
	// 409 {"message":"already shipped"}, replayed: ""
	// 409 {"message":"already shipped"}, replayed: "true"
}
