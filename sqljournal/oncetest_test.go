package sqljournal_test

import (
	"cmp"
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/oncetest"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// paying is a service whose handlers pay in each way that a journal offers.
type paying struct {
	*testing.T
	db      *sql.DB
	journal *sqljournal.Journal
	charged atomic.Int64 // by a provider
}

const insertPaid = "insert into payments (amount) values (1250)"

// inTx pays in the journal's transaction.
func (p *paying) inTx(w http.ResponseWriter, r *http.Request) error {
	return p.journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
		return cmp.Or(exec(tx, insertPaid), writeJSON(w, http.StatusCreated, "paid"))
	})
}

// atProvider pays at a provider.
func (p *paying) atProvider(w http.ResponseWriter, _ *http.Request) error {
	p.charged.Add(1)
	return writeJSON(w, http.StatusCreated, "paid")
}

// protected returns the handler that pays in that way.
func (p *paying) protected(locker *lock.Locker, pay func(*paying, http.ResponseWriter, *http.Request) error) http.Handler {
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithRequired(), middleware.WithJournal(p.journal))
	return once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := pay(p, w, r); err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError)
		}
	}))
}

// count returns how many payments there are.
func (p *paying) count() (n int) {
	if err := p.db.QueryRow("select count(*) from payments").Scan(&n); err != nil {
		p.Error(err)
	}
	return n + int(p.charged.Load())
}

// request returns what makes requests of that user to pay that amount.
func request(user, amount string) func(key string) *http.Request {
	return func(key string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(amount))
		r.SetBasicAuth(user, "")
		r.Header.Set("Idempotency-Key", key)
		return r
	}
}

// fault: all that oncetest does to a handler, which has its effect in each way that a journal offers.
// Expected: one effect for each key, and no hang.
func TestOncetest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  string
		pay   func(*paying, http.ResponseWriter, *http.Request) error
		alone bool // without Redis
	}{
		"transactional, InTx":        {"transactional", (*paying).inTx, false},
		"intent, InTx":               {"intent", (*paying).inTx, false},
		"intent, provider":           {"intent", (*paying).atProvider, false},
		"intent, InTx, no Redis":     {"intent", (*paying).inTx, true},
		"intent, provider, no Redis": {"intent", (*paying).atProvider, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
				p := &paying{T: t, db: d.Open(t), journal: modes[c.mode](d, t)}
				mustExec(t, p.db, "create table payments (amount integer not null)")
				oncetest.Run(t, oncetest.Case{
					Handler: func(client redis.UniversalClient) http.Handler {
						locker := lock.None(namespace)
						if !c.alone {
							locker = lock.New(client, namespace, lock.WithOpTimeout(30*time.Second))
						}
						t.Cleanup(func() { _ = locker.Close(context.Background()) })
						return p.protected(locker, c.pay)
					},
					Request:      request("ann", "1250"),
					OtherRequest: request("ann", "99"),
					OtherUser:    request("bob", "1250"),
					Effects:      p.count,
					Limit:        5 * time.Minute,
				})
			})
		})
	}
}
