package middleware_test

import (
	"context"
	"encoding/json"
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
	locker := lock.New(client, "payments-api", lock.WithOpTimeout(30*time.Second))
	return locker, redisServer{server, func() {
		_ = locker.Close(context.Background())
		_ = client.Close()
		server.Close()
	}}
}

// post sends a request of the user ann, and prints the status of the answer and whether that is a replay.
func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
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

// keyOf stands for a key of 32 random bytes from your secret store.
func keyOf(year string) []byte { return []byte(strings.Repeat(year, 8)) }

// The key of this year encrypts, and that of last year still decrypts what was stored with it.
func ExampleWithEncryption() {
	locker, server := startLocker()
	defer server.stop()
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "IBAN DE89 3704 0044 0532 0130 00")
	})
	lastYear := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithEncryption(keyOf("2025")))
	thisYear := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithEncryption(keyOf("2026"), keyOf("2025")))

	post(lastYear(pay), "8e03978e", `{"amount":1250}`)
	post(thisYear(pay), "8e03978e", `{"amount":1250}`)
	for _, key := range server.Keys() {
		stored, _ := server.Get(key)
		fmt.Println("visible in Redis:", strings.Contains(stored, "IBAN"))
	}
	// Output:
	// 200
	// 200 replayed
	// visible in Redis: false
}

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

// paymentsJournal stands for the table of sqljournal.Intent.
type paymentsJournal struct{ *memJournal }

func (paymentsJournal) Namespace() string { return "payments-api" }

// openJournal stands for sqljournal.Intent(db, "payments-api") at your program's start.
func openJournal() paymentsJournal { return paymentsJournal{newJournal(true)} }

// Redis forgets everything between two clicks. The journal, a table in your database, has the response.
func ExampleWithJournal() {
	locker, server := startLocker()
	defer server.stop()
	journal := openJournal() // sqljournal.Intent(db, "payments-api")
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithJournal(journal))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("charging the card")
		w.WriteHeader(http.StatusCreated)
	}))
	post(pay, "8e03978e", `{"amount":1250}`)
	server.FlushAll()
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// charging the card
	// 201
	// 201 replayed
}

// Before 409 and 422 are switched on for a live API, shadow shows who would get them. This client uses one key for all of
// its payments.
func ExampleWithShadow() {
	locker, server := startLocker()
	defer server.stop()

	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(), middleware.WithAtMostOnce(), // as it is going to be
		middleware.WithShadow(),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) {
			fmt.Println("would have been:", e.Outcome, e.Status)
		}))
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))

	post(pay, "my-shop", `{"amount":1250}`)
	post(pay, "my-shop", `{"amount":1250}`)
	post(pay, "my-shop", `{"amount":99}`)
	post(pay, "", `{"amount":99}`)
	// Output:
	// would have been: executed 201
	// 201
	// would have been: replayed 201
	// 201
	// would have been: reused 422
	// 201
	// would have been: missing-key 400
	// 201
}

// A payment was sent to the provider, and the process died before the answer came. The provider's ledger says that it
// was made: from now on a retry gets the response that it would have got.
func ExampleMiddleware_Resolve() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.New(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithAtMostOnce(), middleware.WithRetention(7*24*time.Hour))
	pay := once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		middleware.FromContext(r.Context()).Unknown() // a timeout: nobody knows whether the provider got it
		w.WriteHeader(http.StatusBadGateway)
	}))

	post(pay, "8e03978e", `{"amount":1250}`)
	server.FastForward(time.Minute)
	post(pay, "8e03978e", `{"amount":1250}`) // a retry: the outcome is unknown

	ctx := context.Background()
	storageKey := locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "8e03978e"))
	found, err := once.Inspect(ctx, storageKey)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("it is", found.Redis.State)
	paid := middleware.Responded(http.StatusCreated, http.Header{"Location": {"/payments/7"}}, []byte(`{"id":7}`))
	if err := once.Resolve(ctx, storageKey, found.Redis.Token, paid); err != nil {
		fmt.Println("failed:", err)
	}
	post(pay, "8e03978e", `{"amount":1250}`)
	// Output:
	// 502
	// 409
	// it is abandoned
	// 201 replayed
}
