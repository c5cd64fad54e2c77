package sqljournal_test

import (
	"context"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// Without Redis, the row of an intent journal takes the place of the claim.
func ExampleIntent_withoutRedis() {
	db, remove := openSQLite() // your program's database; sqljournal.Schema has the table
	defer remove()
	journal := sqljournal.Intent(db, "payments-api", sqljournal.SQLite())

	locker := lock.None("payments-api")
	defer locker.Close(context.Background())
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithJournal(journal))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// Charge at the payment provider. Sweep hands out what a crash leaves.
		_ = writeJSON(w, http.StatusCreated, payment{ID: 1, Amount: 1250})
	}))
	post(pay)
	post(pay)
	// Output:
	// 201 {"id":1,"amount":1250}
	// replayed 201 {"id":1,"amount":1250}
}
