package system_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// namespace is the shop's, in Redis and in the journal.
const namespace = "shop"

// shop is an instance of a service that takes payments. A payment is a row of the table payments, or a request to a
// provider.
type shop struct {
	Redis    string        // address; not used if Alone
	Alone    bool          // without Redis: lock.None
	Database string        // URL
	Kind     dbtest.Kind   // of the database
	Journal  journalMode   // of WithJournal
	AtMost   bool          // WithAtMostOnce
	Provider string        // URL; empty: the payment is a row, in InTx
	Lease    time.Duration // of a claim in Redis
	Limit    time.Duration // of a run
	Patient  bool          // with Redis: a call may take as long as a test
	Messages bool          // a payment is a message: see consumer
}

type journalMode string

const (
	noJournal     journalMode = ""
	transactional journalMode = "transactional"
	intent        journalMode = "intent"
)

// receipt is the body of the response to a payment. The nonce identifies the run of the handler.
type receipt struct {
	Key   string `json:"key"`
	Nonce string `json:"nonce"`
}

// open returns the instance's handler, and what closes the instance.
func (s shop) open() (http.Handler, func() error, error) {
	db, err := sql.Open(s.Kind.Driver(), s.Database)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	locker, closeLocker := s.newLocker()
	opts := []middleware.Option{middleware.WithRequired(), middleware.WithMaxDuration(s.Limit)}
	journal := sqljournal.Transactional(db, namespace, s.Kind.Options()...)
	if s.Journal == intent {
		journal = sqljournal.Intent(db, namespace, s.Kind.Options()...)
	}
	if s.Journal != noJournal {
		opts = append(opts, middleware.WithJournal(journal))
	}
	if s.AtMost {
		opts = append(opts, middleware.WithAtMostOnce())
	}
	pay := payIn(journal)
	if s.Provider != "" {
		pay = payElsewhere(journal, s.Provider, s.Journal == intent)
	}
	closeAll := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return errors.Join(closeLocker(ctx), db.Close())
	}
	if s.Messages {
		of := once.WithJournal(journal)
		if s.AtMost {
			of, journal = once.WithAtMostOnce(), nil
		}
		return consumer{once.New(locker, of, once.WithMaxDuration(s.Limit)), s.Provider, journal}, closeAll, nil
	}
	return middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), opts...)(pay), closeAll, nil
}

func (s shop) newLocker() (locker *lock.Locker, closeBoth func(context.Context) error) {
	if s.Alone {
		locker = lock.None(namespace)
		return locker, locker.Close
	}
	options := &redis.Options{Addr: s.Redis, DialerRetries: 1}
	opts := []lock.Option{lock.WithTTL(s.Lease)}
	if s.Patient {
		options.ReadTimeout = patience // a command that a proxy holds is not sent again
		opts = append(opts, lock.WithOpTimeout(patience))
	}
	client := redis.NewClient(options)
	locker = lock.New(client, namespace, opts...)
	return locker, func(ctx context.Context) error { return errors.Join(locker.Close(ctx), client.Close()) }
}

func newReceipt(r *http.Request) receipt {
	return receipt{Key: r.Header.Get("X-Payment"), Nonce: uuid.NewString()}
}

// payIn returns a handler whose payment is in the journal's database.
func payIn(journal *sqljournal.Journal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		paid := newReceipt(r)
		err := journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(r.Context(), "insert into payments values ('"+paid.Key+"', '"+paid.Nonce+"')")
			if err != nil {
				return err
			}
			return writeReceipt(w, paid)
		})
		if err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError)
		}
	}
}

// payElsewhere returns a handler that asks a provider to pay, and with an intent journal notes that first.
func payElsewhere(journal *sqljournal.Journal, provider string, notes bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		paid := newReceipt(r)
		if notes {
			if err := journal.Note(r.Context(), []byte(paid.Key)); err != nil {
				http.Error(w, "payment failed", http.StatusInternalServerError)
				return
			}
		}
		if err := askProvider(r.Context(), provider, paid); err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError)
			return
		}
		_ = writeReceipt(w, paid) // of no consequence: the payment is made
	}
}

func askProvider(ctx context.Context, provider string, paid receipt) error {
	body, err := json.Marshal(paid)
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, provider, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

func writeReceipt(w http.ResponseWriter, paid receipt) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(paid)
}

// serveShop is the program of an instance. Its argument is a shop in JSON. It prints its URL, and serves until its input
// ends or it is killed.
func serveShop(args []string, in io.Reader, out io.Writer) error {
	var s shop
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return err
	}
	handler, closeAll, err := s.open()
	if err != nil {
		return err
	}
	listener, err := redistest.ListenAlone()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if _, err := fmt.Fprintf(out, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = errors.Join(server.Shutdown(ctx), closeAll())
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
