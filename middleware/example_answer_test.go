package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// The options that all services of a company share. A service can still change one of them.
func ExampleOptions() {
	locker, server := startLocker()
	defer server.stop()
	ours := middleware.Options(middleware.WithRequired(), middleware.WithProblemStatus("key-missing", http.StatusPreconditionRequired))
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), ours,
		middleware.WithProblemStatus("key-missing", http.StatusBadRequest))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
	post(pay, "", `{"amount":1250}`)
	// Output: 400
}

// An API that has promised 409 for a key that is used again.
func ExampleWithProblemStatus() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithProblemStatus("key-reused", http.StatusConflict))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":9900}`)
	// Output:
	// 201
	// 409
}

// Every response has the key of its request, so that a support ticket with a response names the request.
func ExampleWithKeyEcho() {
	locker, server := startLocker()
	defer server.stop()
	header := "Idempotency-Key"
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithKeyEcho(header, keyfunc.Header(header)))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
	fmt.Println(post(pay, "8e03978e", `{"amount":1250}`).Header().Get(header))
	fmt.Println(post(pay, "8e03978e", `{"amount":9900}`).Header().Get(header))
	// Output:
	// 201
	// 8e03978e
	// 422
	// 8e03978e
}

func ExampleWithReplayHeader() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithReplayHeader("X-Replayed"))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
	post(pay, "8e03978e", `{"amount":1250}`)
	fmt.Println(post(pay, "8e03978e", `{"amount":1250}`).Header().Get("X-Replayed"))
	// Output:
	// 201
	// 201
	// true
}

// A client that builds its JSON anew for each try.
func ExampleWithJSONBodyFingerprint() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithJSONBodyFingerprint())

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
	post(pay, "8e03978e", `{"amount":1250,"currency":"EUR"}`)
	post(pay, "8e03978e", `{"currency": "EUR", "amount": 1250.0}`)
	post(pay, "8e03978e", `{"amount":1250,"currency":"EUR","note":null}`)
	// Output:
	// 201
	// 201 replayed
	// 422
}

// A query that only traces the request.
func ExampleWithBodyFingerprint() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithBodyFingerprint())

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
	for _, trace := range []string{"1", "2"} {
		r := httptest.NewRequest(http.MethodPost, "/payments?trace="+trace, nil)
		r.SetBasicAuth("ann", "")
		r.Header.Set("Idempotency-Key", "8e03978e")
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 201 false
	// 201 true
}

// With WithAtMostOnce a 503 is stored, unless the handler sends it only before it does anything.
func ExampleWithNothingHappened() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithAtMostOnce(),
		middleware.WithNothingHappened(func(status int, header http.Header) bool {
			return status == http.StatusServiceUnavailable && header.Get("Retry-After") != ""
		}))

	isReady := false
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isReady { // before any effect
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	isReady = true
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// 503
	// 201
	// 201 replayed
}

// An API that promises that a retry after a 5xx is a new request. The effect must not have happened then.
func ExampleWithoutServerErrors() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithoutServerErrors(), middleware.WithStored(middleware.StoreAll))

	status := http.StatusServiceUnavailable
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
	post(pay, "8e03978e", `{"amount":1250}`)
	status = http.StatusCreated
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// 503
	// 201
	// 201 replayed
}
