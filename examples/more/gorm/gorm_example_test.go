package gorm_test

import (
	"context"
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
	db, closeDB := openDatabase()
	defer closeDB()
	pool, err := db.DB()
	if err != nil {
		panic(err)
	}
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

	locker, server, stop := startLocker()
	defer stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithJournal(journal))
	handler := once(pay)

	post(handler)
	server.FlushAll() // Redis forgets everything
	post(handler)     // the second click

	var payments int64
	if err := db.Model(&Payment{}).Count(&payments).Error; err != nil {
		panic(err)
	}
	fmt.Println("payments:", payments)
	// Output:
	// 201 {"id":1,"amount":1250}
	// replayed 201 {"id":1,"amount":1250}
	// payments: 1
}

// openDatabase opens a new database with the journal's table and one for payments.
func openDatabase() (db *gorm.DB, remove func()) {
	dir, err := os.MkdirTemp("", "gorm")
	if err != nil {
		panic(err)
	}
	source := "file:" + filepath.Join(dir, "payments.db") +
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_pragma=synchronous(full)"
	db, err = gorm.Open(sqlite.Open(source), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		panic(err)
	}
	if err := db.Exec(sqljournal.Schema(sqljournal.DialectSQLite)).Error; err != nil {
		panic(err)
	}
	if err := db.AutoMigrate(&Payment{}); err != nil {
		panic(err)
	}
	return db, func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
		_ = os.RemoveAll(dir)
	}
}

// startLocker stands for a lock.New at your program's start.
func startLocker() (locker *lock.Locker, server *miniredis.Miniredis, stop func()) {
	server = miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker = lock.New(client, "payments-api")
	return locker, server, func() {
		_ = locker.Close(context.Background())
		_ = client.Close()
		server.Close()
	}
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
