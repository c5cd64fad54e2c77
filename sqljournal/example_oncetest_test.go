package sqljournal_test

import (
	"context"
	"database/sql"
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/oncetest"
	"github.com/onceguard/onceguard/sqljournal"
)

// newAPI stands for your service.
func newAPI(locker *lock.Locker, db *sql.DB, journal *sqljournal.Journal) http.Handler {
	return (&paying{db: db, journal: journal}).protected(locker, (*paying).inTx)
}

// paymentRequest makes a request with that key.
func paymentRequest(key string) *http.Request { return request("ann", "1250")(key) }

// A test of your handler: package oncetest sends it through all that may go wrong.
func Example_oncetest() {
	var t *testing.T // that of your test
	db, remove := openSQLite()
	defer remove()
	journal := sqljournal.Transactional(db, "payments-api", sqljournal.SQLite())

	oncetest.Run(t, oncetest.Case{
		Handler: func(client redis.UniversalClient) http.Handler {
			locker := lock.New(client, "payments-api")
			t.Cleanup(func() { _ = locker.Close(context.Background()) })
			return newAPI(locker, db, journal)
		},
		Request: paymentRequest,
		Effects: func() (n int) {
			if err := db.QueryRow("select count(*) from payments").Scan(&n); err != nil {
				t.Error(err)
			}
			return n
		},
	})
}
