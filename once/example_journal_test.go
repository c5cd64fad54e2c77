package once_test

import (
	"context"
	"fmt"

	"github.com/onceguard/onceguard/once"
)

// paymentsJournal stands for the table of sqljournal.Intent.
type paymentsJournal struct{ *memJournal }

func (paymentsJournal) Namespace() string { return "payments" }

// openJournal stands for sqljournal.Intent(db, "payments") at your program's start.
func openJournal() paymentsJournal { return paymentsJournal{newJournal(true)} }

// Redis forgets everything between two deliveries. The journal, a table in your database, has the result.
func ExampleWithJournal() {
	server, locker, stop := startServer()
	defer stop()
	journal := openJournal() // sqljournal.Intent(db, "payments")
	guard := once.New(locker, once.WithJournal(journal))

	deliver := func() {
		key := once.Key{Operation: "charge", Scope: "ann", ID: "m-7"}
		receipt, replayed, err := once.Do(context.Background(), guard, key, func(ctx context.Context) (Receipt, error) {
			return charge(ctx, Order{"ann", 1250})
		})
		fmt.Println(receipt.Payment, replayed, err)
	}
	deliver()
	server.FlushAll()
	deliver()
	// Output:
	// charging ann 1250
	// p-1 false <nil>
	// p-1 true <nil>
}
