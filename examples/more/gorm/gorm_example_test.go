// Package gorm has an example of sqljournal with gorm. It is here so that no ORM reaches the go.sum of those who use
// sqljournal.
package gorm_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/alicebob/miniredis/v2"
	"github.com/glebarez/sqlite" // registers the driver "sqlite", as modernc.org/sqlite does: a program has one of them
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// Payment is a row of the table payments.
type Payment struct {
	ID     int64 `json:"id"`
	Amount int64 `json:"amount"`
}

// A transaction of gorm. Its Statement.ConnPool is the *sql.Tx below it, and complete is called last.
func Example_gorm() {
	dir := must(os.MkdirTemp("", "gorm"))
	defer os.RemoveAll(dir)
	db := must(gorm.Open(sqlite.Open("file:"+filepath.Join(dir, "payments.db")+
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_pragma=synchronous(full)"), &gorm.Config{Logger: logger.Discard}))
	must(0, db.Exec(sqljournal.Schema(sqljournal.DialectSQLite)).Error)
	must(0, db.AutoMigrate(&Payment{}))
	pool := must(db.DB())
	defer pool.Close()
	journal := sqljournal.Transactional(pool, "payments-api", sqljournal.SQLite())

	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := journal.Around(r.Context(), func(complete func(sqljournal.Execer) error) error {
			return db.WithContext(r.Context()).Transaction(func(tx *gorm.DB) error {
				payment := Payment{Amount: 1250}
				if err := tx.Create(&payment).Error; err != nil {
					return err
				}
				w.WriteHeader(http.StatusCreated)
				if err := json.NewEncoder(w).Encode(payment); err != nil {
					return err
				}
				return complete(tx.Statement.ConnPool)
			})
		})
		if err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError) // not sent after ErrAnswered
		}
	})

	server := must(miniredis.Run())
	defer server.Close()
	locker := lock.New(redis.NewClient(&redis.Options{Addr: server.Addr()}), "payments-api")
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithJournal(journal))
	post(once(pay))
	server.FlushAll() // Redis forgets everything
	post(once(pay))   // the second click

	var payments int64
	must(0, db.Model(&Payment{}).Count(&payments).Error)
	fmt.Println("payments:", payments)
	// Output:
	// 201 {"id":1,"amount":1250}
	// replayed 201 {"id":1,"amount":1250}
	// payments: 1
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// post sends a payment of the user ann, and prints the answer.
func post(h http.Handler) {
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", "8e03978e")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Header().Get("Idempotent-Replayed") == "true" {
		fmt.Print("replayed ")
	}
	fmt.Print(w.Code, " ", w.Body)
}
