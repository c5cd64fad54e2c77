package sqljournal_test

import (
	"database/sql"
	"fmt"
	"log"

	_ "github.com/go-sql-driver/mysql" // the driver

	"github.com/onceguard/onceguard/sqljournal"
)

func ExampleMySQL() {
	db, err := sql.Open("mysql", "payments:secret@tcp(localhost)/payments") // no parameters are needed
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	journal := sqljournal.Transactional(db, "payments-api", sqljournal.MySQL())
	fmt.Println(journal.Namespace())
	// Output: payments-api
}
