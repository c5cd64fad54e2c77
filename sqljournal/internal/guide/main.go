package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

func main() {
	if err := serve(); err != nil {
		log.Fatal(err)
	}
}

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	journal := sqljournal.Transactional(db, "payments-api")
	if err := journal.Check(ctx); errors.Is(err, sqljournal.ErrTable) {
		return err // run the migration first
	} else if err != nil {
		log.Print(err) // a commit may be lost, or the database does not answer: up to you
	}

	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	locker := lock.New(client, "payments-api")
	if err := locker.Check(ctx); err != nil {
		log.Print(err) // not fatal: without Redis the database decides
	}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), // your authentication's user id
		middleware.WithRequired(),
		middleware.WithJournal(journal),
		middleware.WithWait(10*time.Second),
		middleware.WithMaxDuration(25*time.Second))

	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(pay(journal)))
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}

	background, cancel := context.WithCancel(context.Background())
	var jobs sync.WaitGroup
	jobs.Go(func() { expire(background, journal) })
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	shutdown, done := context.WithTimeout(context.Background(), 30*time.Second)
	defer done()
	err = errors.Join(err, server.Shutdown(shutdown), locker.Close(shutdown), client.Close())
	cancel()
	jobs.Wait()
	return err
}

func pay(journal *sqljournal.Journal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var order struct {
			Amount int64 `json:"amount"`
		}
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			_ = middleware.FromContext(r.Context()).Discard() // nothing has happened
			http.Error(w, "the body is not an order", http.StatusBadRequest)
			return
		}
		err := journal.InTx(r.Context(), nil, func(tx *sql.Tx) error { // all writes of the handler, through tx
			var id int64
			row := tx.QueryRowContext(r.Context(), "insert into payments (amount) values ($1) returning id", order.Amount)
			if err := row.Scan(&id); err != nil {
				return err
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			return json.NewEncoder(w).Encode(map[string]int64{"id": id, "amount": order.Amount})
		})
		if err != nil {
			log.Print(err)
			http.Error(w, "payment failed", http.StatusInternalServerError) // nothing was written; discarded after ErrAnswered
		}
	}
}

// expire removes the rows that have expired. Any number of instances may run it.
func expire(ctx context.Context, journal *sqljournal.Journal) {
	every := time.NewTicker(5 * time.Minute)
	defer every.Stop()
	for {
		if _, err := journal.Expire(ctx); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}
