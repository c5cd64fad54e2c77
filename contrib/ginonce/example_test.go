package ginonce_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/ginonce"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// currentUser returns the id that gin.BasicAuth has found.
func currentUser(c *gin.Context) string { return c.GetString(gin.AuthUserKey) }

func Example() {
	server := miniredis.NewMiniRedis() // stands for your Redis
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()

	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	locker := lock.New(client, "payments-api")
	once := ginonce.Idempotency(locker, keyfunc.Standard(ginonce.User(currentUser)), middleware.WithRequired())

	router := gin.New()
	router.Use(gin.Recovery(), gin.BasicAuth(gin.Accounts{"ann": "secret"}))
	payments := 0
	router.POST("/payments", once, func(c *gin.Context) {
		payments++
		c.JSON(http.StatusCreated, gin.H{"payment": payments})
	})

	for range 2 { // a double click
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":1250}`))
		r.SetBasicAuth("ann", "secret")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}

	// When the server stops: http.Server.Shutdown first, then
	if err := errors.Join(locker.Close(context.Background()), client.Close()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 201 {"payment":1}, replayed: ""
	// 201 {"payment":1}, replayed: "true"
}

// The routes of a group that have effects. What renders errors comes after once, so that what it writes is stored.
func ExampleIdempotency() {
	locker, stop := startLocker()
	defer stop()
	once := ginonce.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))

	router := gin.New()
	orders := router.Group("/orders", once, func(c *gin.Context) {
		c.Next()
		if err := c.Errors.Last(); err != nil {
			c.JSON(http.StatusConflict, gin.H{"error": err.Error()})
		}
	})
	orders.POST("/:order/cancel", func(c *gin.Context) {
		fmt.Println("looking for order", c.Param("order"))
		_ = c.Error(errors.New("already shipped"))
	})
	for range 2 {
		post(router, "/orders/17/cancel")
	}
	// Output:
	// looking for order 17
	// 409 {"error":"already shipped"}
	// 409 {"error":"already shipped"} replayed
}

func ExampleUser() {
	locker, stop := startLocker()
	defer stop()
	user := func(c *gin.Context) string { return c.GetString("account") } // never a token
	once := ginonce.Idempotency(locker, keyfunc.Standard(ginonce.User(user)))

	router := gin.New()
	router.Use(func(c *gin.Context) { c.Set("account", "acct-42") }) // your authentication
	router.POST("/payments", once, func(c *gin.Context) { c.String(http.StatusCreated, "paid") })
	post(router, "/payments")
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
	fmt.Printf("%d %s%s\n", w.Code, w.Body, replayed)
}
