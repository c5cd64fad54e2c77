package middleware_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// A phone was off for a month, with an unanswered payment in its queue. Nobody knows whether that payment was made, so it
// is not made now.
func ExampleWithKeyAge() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithKeyAge(24*time.Hour, keyfunc.Header("Idempotency-Key")))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("paid")
		w.WriteHeader(http.StatusCreated)
	}))
	const made2022 = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f" // a UUID of version 7
	post(pay, made2022, `{"amount":1250}`)                  // key-expired
	post(pay, "8e03978e", `{"amount":1250}`)                // this key has no age
	// Output:
	// 400
	// paid
	// 201
}

// A client builds the body anew for each try: the members come in another order, and the time of sending differs.
func ExampleWithJSONFingerprint() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithJSONFingerprint("/sent_at"))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250,"currency":"EUR","sent_at":"09:00:00"}`)
	post(pay, "8e03978e", `{"currency": "EUR", "amount": 1250, "sent_at": "09:00:05"}`)
	post(pay, "8e03978e", `{"currency": "EUR", "amount": 9900, "sent_at": "09:00:10"}`)
	// Output:
	// 201
	// 201 replayed
	// 422
}
