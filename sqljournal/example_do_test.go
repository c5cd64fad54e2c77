package sqljournal_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
)

// A queue delivers a message twice. Its payment is inserted once, and Redis may forget everything in between.
func ExampleDo() {
	db, remove := openSQLite() // your program's database; sqljournal.Schema has the table
	defer remove()
	locker, redis, stop := startLocker() // lock.New at your program's start
	defer stop()
	guard := once.New(locker, once.WithJournal(sqljournal.Transactional(db, "payments-api", sqljournal.SQLite())))

	receive := func(messageID string, order payment) {
		key := once.Key{Operation: "pay", Scope: "orders", ID: messageID, Input: order}
		paid, replayed, err := sqljournal.Do(context.Background(), guard, key, nil,
			func(ctx context.Context, tx *sql.Tx) (payment, error) {
				return insertPayment(ctx, tx, order)
			})
		if err != nil {
			log.Print(err) // not acknowledged: the queue delivers the message again
			return
		}
		fmt.Println("payment", paid.ID, "replayed:", replayed)
	}
	receive("message 1", payment{Amount: 1250})
	redis.FlushAll()
	receive("message 1", payment{Amount: 1250})
	// Output:
	// payment 1 replayed: false
	// payment 1 replayed: true
}
