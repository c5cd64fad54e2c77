package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

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

// One Middleware protects several handlers. With keyfunc.Standard a key belongs to one route.
func ExampleNew() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.New(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithRequired())

	mux := http.NewServeMux()
	for _, route := range []string{"POST /payments", "POST /refunds"} {
		mux.Handle(route, once.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Println("running", route)
			w.WriteHeader(http.StatusCreated)
		})))
	}
	for _, path := range []string{"/payments", "/payments", "/refunds"} {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.SetBasicAuth("ann", "")
		r.Header.Set("Idempotency-Key", "8e03978e")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d, replayed: %q\n", w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// running POST /payments
	// 201, replayed: ""
	// 201, replayed: "true"
	// running POST /refunds
	// 201, replayed: ""
}
