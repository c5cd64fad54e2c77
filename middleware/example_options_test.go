package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// redisServer stands for your Redis.
type redisServer struct {
	*miniredis.Miniredis
	stop func()
}

// startLocker stands for a lock.New at your program's start.
func startLocker() (*lock.Locker, redisServer) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker := lock.New(client, "payments-api", lock.WithOpTimeout(20*time.Second))
	return locker, redisServer{server, func() {
		_ = locker.Close(context.Background())
		_ = client.Close()
		server.Close()
	}}
}

// send sends a request of the user ann, and prints the status of the answer and whether that is a replay.
func send(h http.Handler, method, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/payments", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.SetBasicAuth("ann", "")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Header().Get("Idempotent-Replayed") == "true" {
		fmt.Println(w.Code, "replayed")
	} else {
		fmt.Println(w.Code)
	}
	return w
}

// post sends a POST request.
func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	return send(h, http.MethodPost, key, body)
}

// A DELETE that takes the oldest job takes another one each time: it is not idempotent by itself.
func ExampleWithMethods() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithMethods(http.MethodPost, http.MethodDelete))

	takeOldest := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("a job is taken")
		w.WriteHeader(http.StatusOK)
	}))
	send(takeOldest, http.MethodDelete, "8e03978e", "")
	send(takeOldest, http.MethodDelete, "8e03978e", "")
	// Output:
	// a job is taken
	// 200
	// 200 replayed
}

// A client that forgets the key learns it from its first test, not from a customer who has paid twice.
func ExampleWithRequired() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithRequired())

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// 400
	// 201
}

// The retention must be longer than clients retry: a queue that redelivers for three days needs more than the default.
func ExampleWithRetention() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRetention(4*24*time.Hour))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	server.FastForward(3 * 24 * time.Hour)
	post(pay, "8e03978e", `{"amount":1250}`)
	server.FastForward(2 * 24 * time.Hour)
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// 201
	// 201 replayed
	// 201
}

// A declined card has charged nothing: the customer may fill the account and press the same button again.
func ExampleWithStored() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithStored(func(status int) bool {
			return status != http.StatusPaymentRequired && middleware.StoreDefault(status)
		}))

	balance := 0
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if balance < 1250 {
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	balance = 2000
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// 402
	// 201
	// 201 replayed
}

func ExampleStoreDefault() {
	for _, status := range []int{201, 303, 422, 404, 429, 503} {
		fmt.Println(status, middleware.StoreDefault(status))
	}
	// Output:
	// 201 true
	// 303 true
	// 422 true
	// 404 false
	// 429 false
	// 503 false
}

// For a handler that may fail after it has done something: once it has answered, it does not run again.
func ExampleStoreAll() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithStored(middleware.StoreAll))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charging the card")
		w.WriteHeader(http.StatusInternalServerError)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// charging the card
	// 500
	// 500 replayed
}

// A handler that stops when its context is done should still answer: only it knows whether anything has happened.
func ExampleWithMaxDuration() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithMaxDuration(10*time.Millisecond))

	quote := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // as a slow query with this context would
		fmt.Println(context.Cause(r.Context()))
		w.WriteHeader(http.StatusGatewayTimeout) // not stored: a retry runs again
	}))
	post(quote, "8e03978e", `{"amount":1250}`)
	// Output:
	// context deadline exceeded
	// 504
}

func ExampleWithMaxBody() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithMaxBody(64))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "a7c1f02b", `{"amount":1250,"note":"`+strings.Repeat("thanks! ", 10)+`"}`)
	// Output:
	// 201
	// 413
}

// A response that is too long to keep still counts: the export was made once, and is not made again.
func ExampleWithMaxResponse() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithMaxResponse(64))

	export := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("exporting")
		for line := range 10 {
			fmt.Fprintf(w, "payment %d, 12.50 EUR\n", line)
		}
	}))
	post(export, "8e03978e", "")
	post(export, "8e03978e", "")
	// Output:
	// exporting
	// 200
	// 409
}

// A client puts the time of sending into each try. Only another amount makes it another payment.
func ExampleWithFingerprint() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithFingerprint("amount", func(r *http.Request, body []byte) []byte {
			var p struct{ Amount int }
			if err := json.Unmarshal(body, &p); err != nil {
				return body // the handler refuses it
			}
			return fmt.Appendf(nil, "%s %s %d", r.Method, r.URL.Path, p.Amount)
		}))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250,"sent":"09:00:00"}`)
	post(pay, "8e03978e", `{"amount":1250,"sent":"09:00:05"}`)
	post(pay, "8e03978e", `{"amount":9900,"sent":"09:00:10"}`)
	// Output:
	// 201
	// 201 replayed
	// 422
}

// Two newsletter subscriptions are better than none. Two payments are worse: leave the option out there.
func ExampleWithFailOpen() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithFailOpen())

	subscribe := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("subscribed")
		w.WriteHeader(http.StatusNoContent)
	}))
	server.SetError("ERR away")
	post(subscribe, "8e03978e", `{"email":"ann@example.com"}`)
	post(subscribe, "8e03978e", `{"email":"ann@example.com"}`)
	// Output:
	// subscribed
	// 204
	// subscribed
	// 204
}

// The shop needs this cookie after a replay too, and it is not a credential.
func ExampleWithCookies() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithCookies())

	order := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "basket", Value: "empty"})
		w.WriteHeader(http.StatusCreated)
	}))
	post(order, "8e03978e", `{"item":"tea"}`)
	w := post(order, "8e03978e", `{"item":"tea"}`)
	fmt.Println(w.Header().Get("Set-Cookie"))
	// Output:
	// 201
	// 201 replayed
	// basket=empty
}

func ExampleWithObserver() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) {
			fmt.Println("event:", e.Outcome, e.Status)
		}))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":9900}`)
	// Output:
	// event: executed 201
	// 201
	// event: replayed 201
	// 201 replayed
	// event: reused 422
	// 422
}

// Log what may have happened twice or half as an error, and what failed as a warning.
func ExampleOutcome() {
	level := func(e middleware.Event) slog.Level {
		switch {
		case e.Outcome == middleware.Unknown, e.Outcome == middleware.LeaseLost:
			return slog.LevelError
		case e.Err != nil:
			return slog.LevelWarn
		}
		return slog.LevelInfo
	}
	fmt.Println(level(middleware.Event{Outcome: middleware.Replayed}))
	fmt.Println(level(middleware.Event{Outcome: middleware.StoreUnavailable, Err: context.DeadlineExceeded}))
	fmt.Println(level(middleware.Event{Outcome: middleware.LeaseLost, Err: lock.ErrLost}))
	// Output:
	// INFO
	// WARN
	// ERROR
}

// Counters for every outcome, safe for the concurrent calls.
func ExampleEvent() {
	locker, server := startLocker()
	defer server.stop()
	counts := new(expvar.Map)
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) {
			counts.Add(string(e.Outcome), 1)
		}))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "", `{"amount":1250}`)
	fmt.Println(counts)
	// Output:
	// 201
	// 201 replayed
	// 201
	// {"executed": 1, "replayed": 1, "unprotected": 1}
}

// Where the time of a request went.
func ExampleEvent_phases() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) {
			inRedis := e.Claim.Duration + e.Settle.Duration
			fmt.Println(e.Outcome, "in Redis:", inRedis > 0, "in the handler:", e.Handler.Duration > 0)
		}))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// executed in Redis: true in the handler: true
	// 201
	// replayed in Redis: true in the handler: false
	// 201 replayed
}

// A replay leads to the trace of the run that it repeats. Package contrib/otelonce does this for OpenTelemetry.
func ExampleWithTraceparent() {
	locker, server := startLocker()
	defer server.stop()
	type traceKey struct{}
	traceOf := func(ctx context.Context) string {
		traceparent, _ := ctx.Value(traceKey{}).(string)
		return traceparent
	}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithTraceparent(traceOf),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) {
			fmt.Printf("%s %q\n", e.Outcome, e.Traceparent)
		}))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	traced := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // a tracing middleware does this
		const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		pay.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), traceKey{}, traceparent)))
	})
	post(traced, "8e03978e", `{"amount":1250}`)
	post(traced, "8e03978e", `{"amount":1250}`)
	// Output:
	// executed ""
	// 201
	// replayed "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	// 201 replayed
}

// Errors in the format of the rest of the API.
func ExampleWithProblem() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithRequired(),
		middleware.WithProblem(func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
			code := strings.TrimPrefix(p.Type, "urn:onceguard:problem:")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(p.Status)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "message": p.Title})
		}))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	fmt.Print(post(pay, "", `{"amount":1250}`).Body)
	// Output:
	// 400
	// {"error":"key-missing","message":"Idempotency key is missing"}
}

// Most HTTP clients retry a 503 and give up at a 409: got, ky, urllib3, axios-retry and go-retryablehttp among them. Where
// such clients call, say 503 while the first request runs. Retry-After and X-Should-Retry are set already.
func ExampleWithProblem_inFlightAs503() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithProblem(func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
			if p.Type == "urn:onceguard:problem:in-flight" {
				p.Status = http.StatusServiceUnavailable
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(p.Status)
			_ = json.NewEncoder(w).Encode(p)
		}))

	var pay http.Handler
	pay = once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		again := post(pay, "8e03978e", `{"amount":1250}`) // while the first one runs
		fmt.Println("Retry-After:", again.Header().Get("Retry-After"))
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// 503
	// Retry-After: 1
	// 201
}

// Errors for Stripe's own SDKs. stripe-node takes a body without a member "error" for a success, whatever the status is. Package
// profile has the rest of the rules of Stripe's API.
func ExampleWithProblem_stripe() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithProblem(func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
			type stripeError struct {
				Type    string `json:"type"`
				Code    string `json:"code"`
				Message string `json:"message"`
			}
			e := stripeError{"invalid_request_error", strings.TrimPrefix(p.Type, "urn:onceguard:problem:"), p.Detail}
			switch {
			case e.Code == "key-reused":
				e.Type = "idempotency_error"
			case p.Status >= 500:
				e.Type = "api_error"
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Stripe-Should-Retry", strconv.FormatBool(p.Retryable)) // their name for X-Should-Retry
			w.WriteHeader(p.Status)
			_ = json.NewEncoder(w).Encode(map[string]stripeError{"error": e})
		}))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	fmt.Print(post(pay, "8e03978e", `{"amount":9900}`).Body)
	// Output:
	// 201
	// 422
	// {"error":{"type":"idempotency_error","code":"key-reused","message":"This idempotency key was used for another request. Use a new key for a new request."}}
}

// How a client in Go reads a problem.
func ExampleProblem() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	w := post(pay, "8e03978e", `{"amount":9900}`)

	if w.Header().Get("Content-Type") == "application/problem+json" {
		var p middleware.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(p.Type)
	}
	// Output:
	// 201
	// 422
	// urn:onceguard:problem:key-reused
}

// Code that also runs outside of a protected handler, in a job for example, needs no if.
func ExampleFromContext() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))

	charge := func(ctx context.Context) {
		fmt.Println("charging the card")
		middleware.FromContext(ctx).Keep() // whatever fails from here on, it is charged
	}
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charge(r.Context())
		w.WriteHeader(http.StatusBadGateway) // no receipt could be sent
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	charge(context.Background()) // the monthly job
	// Output:
	// charging the card
	// 502
	// 502 replayed
	// charging the card
}

// The payment provider takes idempotency keys too. Key is the same for every try, even after a crash.
func ExampleExecution_Key() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charge, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "https://provider.example/charges", nil)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		charge.Header.Set("Idempotency-Key", middleware.FromContext(r.Context()).Key())
		fmt.Println(charge.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// payments-api:{0c60}31812036e19be76e422872adecdf61030371eb0fbe91485ed36eec164502d218
	// 201
}

// The card is charged, and then the receipt fails: a 500 that must not be tried again.
func ExampleExecution_Keep() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))

	sendReceipt := func() error { return errors.New("the mail server does not answer") }
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charging the card")
		middleware.FromContext(r.Context()).Keep()
		if err := sendReceipt(); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// charging the card
	// 500
	// 500 replayed
}

// The connection breaks between COMMIT and its answer: nobody knows whether the payment is in the database.
func ExampleExecution_Unknown() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithAtMostOnce())

	commit := func() error { return io.ErrUnexpectedEOF }
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("paying")
		if err := commit(); err != nil {
			middleware.FromContext(r.Context()).Unknown()
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	post(pay, "8e03978e", `{"amount":1250}`) // while the lease lasts
	server.FastForward(time.Hour)
	w := post(pay, "8e03978e", `{"amount":1250}`)
	fmt.Println(strings.Contains(w.Body.String(), "outcome-unknown"))
	// Output:
	// paying
	// 502
	// 409
	// 409
	// true
}

// Out of stock is a 409 that is true only now: it would be stored, and the customer never get the tea.
func ExampleExecution_Discard() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))

	stock := 0
	order := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stock == 0 {
			if err := middleware.FromContext(r.Context()).Discard(); err != nil {
				fmt.Println(err)
			}
			w.WriteHeader(http.StatusConflict)
			return
		}
		stock--
		w.WriteHeader(http.StatusCreated)
	}))
	post(order, "8e03978e", `{"item":"tea"}`)
	stock = 1
	post(order, "8e03978e", `{"item":"tea"}`)
	post(order, "8e03978e", `{"item":"tea"}`)
	// Output:
	// 409
	// 201
	// 201 replayed
}

// A response that the client has begun to read cannot be discarded.
func ExampleExecution_Discard_committed() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))

	payout := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "paying out merchant 1")
		if err := http.NewResponseController(w).Flush(); err != nil {
			fmt.Println(err)
		}
		err := middleware.FromContext(r.Context()).Discard()
		fmt.Println(errors.Is(err, middleware.ErrCommitted))
	}))
	post(payout, "8e03978e", "")
	post(payout, "8e03978e", "")
	// Output:
	// true
	// 200
	// 200 replayed
}

// An offer is good for ten minutes, and so is its replay.
func ExampleExecution_Retain() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))

	offer := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		middleware.FromContext(r.Context()).Retain(10 * time.Minute)
		w.WriteHeader(http.StatusCreated)
	}))
	post(offer, "8e03978e", `{"item":"tea"}`)
	post(offer, "8e03978e", `{"item":"tea"}`)
	server.FastForward(10 * time.Minute)
	post(offer, "8e03978e", `{"item":"tea"}`)
	// Output:
	// 201
	// 201 replayed
	// 201
}
