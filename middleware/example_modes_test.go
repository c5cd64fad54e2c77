package middleware_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// dying is a handler that ends, in its first run only, as a process that dies: without a response.
func dying() http.Handler {
	runs := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if runs++; runs == 1 {
			fmt.Println("paying; the process dies")
			panic(http.ErrAbortHandler)
		}
		fmt.Println("paying again")
		w.WriteHeader(http.StatusCreated)
	})
}

// postToDying sends a request whose client may get no response.
func postToDying(h http.Handler) {
	defer func() {
		if recover() == http.ErrAbortHandler {
			fmt.Println("no response")
		}
	}()
	post(h, "8e03978e", `{"amount":1250}`)
}

// After a crash no retry runs.
func ExampleWithAtMostOnce() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithAtMostOnce())
	pay := once(dying())

	postToDying(pay)
	server.FastForward(10 * time.Second)
	w := post(pay, "8e03978e", `{"amount":1250}`)
	fmt.Println(problemType(w))
	// Output:
	// paying; the process dies
	// no response
	// 409
	// outcome-unknown
}

// problemType returns the end of the type of the problem that the response is.
func problemType(w *httptest.ResponseRecorder) string {
	var p middleware.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(p.Type, "urn:onceguard:problem:")
}

// What clients get for requests that do not run.
func ExampleIdempotency_problems() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(), middleware.WithMaxBody(100), middleware.WithMaxResponse(10))

	var h http.Handler
	h = once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("while the first runs:", problemType(post(h, "k1", `{"amount":1250}`)))
		fmt.Fprint(w, "a response that is too long to be stored")
	}))
	fmt.Println(problemType(post(h, "", `{"amount":1250}`)))
	fmt.Println(problemType(post(h, `"k1`, `{"amount":1250}`)))
	fmt.Println(problemType(post(h, "k1", strings.Repeat(" ", 101))))
	post(h, "k1", `{"amount":1250}`)
	fmt.Println(problemType(post(h, "k1", `{"amount":1250}`)))
	fmt.Println(problemType(post(h, "k1", `{"amount":9900}`)))
	server.SetError("LOADING Redis is loading the dataset in memory")
	fmt.Println(problemType(post(h, "k2", `{"amount":1250}`)))
	// Output:
	// 400
	// key-missing
	// 400
	// key-invalid
	// 413
	// body-too-large
	// 409
	// while the first runs: in-flight
	// 200
	// 409
	// response-not-stored
	// 422
	// key-reused
	// 503
	// store-unavailable
}
