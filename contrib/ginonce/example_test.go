package ginonce_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

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

// The routes of a group that have effects. What renders errors comes after once, so that what it writes is stored.
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
	effects := router.Group("/", once, func(c *gin.Context) {
		c.Next()
		if err := c.Errors.Last(); err != nil {
			c.JSON(http.StatusConflict, gin.H{"error": err.Error()})
		}
	})
	payments := 0
	effects.POST("/payments", func(c *gin.Context) {
		payments++
		c.JSON(http.StatusCreated, gin.H{"payment": payments})
	})
	effects.POST("/orders/:order/cancel", func(c *gin.Context) {
		fmt.Println("looking for order", c.Param("order"))
		_ = c.Error(errors.New("already shipped"))
	})
	for _, path := range []string{"/payments", "/payments", "/orders/17/cancel", "/orders/17/cancel"} { // double clicks
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.SetBasicAuth("ann", "secret")
		r.Header.Set("Idempotency-Key", "key-of"+path)
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
	// looking for order 17
	// 409 {"error":"already shipped"}, replayed: ""
	// 409 {"error":"already shipped"}, replayed: "true"
}
