package system_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// Two processes take messages, each of which is delivered to them twice at once, and again until it is acknowledged or its
// answer is final. Every second one of the processes is killed and replaced, and Redis, if there is one, forgets everything
// every 20 ms. With sqljournal.Do each message has exactly one effect; with an intent journal that ends by a stored
// failure, none. With an effect elsewhere it never has two, nor with WithAtMostOnce and without a journal, if Redis keeps
// its data.
//
// By default there are 100 messages for each kind of consumer in 3 s, with ONCEGUARD_LONG=1 10,000 in four minutes, and in
// CI 1,000 in ten seconds, or as long as they take.
//
// fault: journal: consumers killed -9 under load, every message delivered again, FLUSHALL every 20 ms or no Redis
// fault: consumers killed -9 under load, every message delivered again, WithAtMostOnce
func TestMessages(t *testing.T) { // not parallel to other tests: it keeps the machine busy
	for _, kind := range dbtest.Servers {
		t.Run(string(kind), func(t *testing.T) { testMessages(t, dbtest.Own(t, kind).Server) })
	}
}

func testMessages(t *testing.T, server *dbtest.Server) {
	all, lasts := 10_000, 4*time.Minute
	if os.Getenv("CI") == "true" {
		all, lasts = 1000, 10*time.Second
	}
	for _, consumers := range []struct {
		name      string
		mode      journalMode
		elsewhere bool
		alone     bool
		atMost    bool
	}{
		{name: "transactional Do", mode: transactional},
		{name: "intent Do", mode: intent},
		{name: "intent, effect elsewhere", mode: intent, elsewhere: true},
		{name: "alone Do", mode: intent, alone: true},
		{name: "alone, effect elsewhere", mode: intent, elsewhere: true, alone: true},
		{name: "at most once, effect elsewhere", elsewhere: true, atMost: true},
	} {
		t.Run(consumers.name, func(t *testing.T) {
			t.Parallel()
			k := newSoak(t, server, consumers.mode, consumers.elsewhere, consumers.alone)
			k.keys, k.lasts, k.clicks = redistest.Rounds(100, all), redistest.Rounds(3*time.Second, lasts), 2
			k.shop.Messages, k.shop.Alone, k.shop.AtMost, k.redisKept = true, consumers.alone, consumers.atMost, consumers.atMost
			k.load(false)
			k.check()
		})
	}
}

// consumer takes messages, whose effect is a payment. It answers the queue as a shop answers a customer.
type consumer struct {
	guard    *once.Guard
	provider string              // URL; empty: the payment is a row, in sqljournal.Do
	journal  *sqljournal.Journal // nil: none
}

func (c consumer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	paid, replayed, err := c.take(r)
	if replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	var refused *once.Refused
	switch {
	case err == nil:
		_ = writeReceipt(w, paid) // the payment is made
	case errors.As(err, &refused):
		problem, ok := problems[refused.Reason]
		if !ok {
			problem = middleware.Problem{Status: http.StatusInternalServerError, Type: refused.Reason.Error()}
		}
		w.WriteHeader(problem.Status)
		problem.Type = "urn:onceguard:problem:" + problem.Type
		_ = json.NewEncoder(w).Encode(problem) // the customer may be gone
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// take takes the message once.
func (c consumer) take(r *http.Request) (paid receipt, replayed bool, err error) {
	made := newReceipt(r)
	key := once.Key{Operation: "pay", Scope: once.Anyone, ID: made.Key, Input: 1250}
	if c.provider == "" {
		return sqljournal.Do(r.Context(), c.guard, key, nil, func(ctx context.Context, tx *sql.Tx) (receipt, error) {
			_, err := tx.ExecContext(ctx, "insert into payments values ('"+made.Key+"', '"+made.Nonce+"')")
			return made, err
		})
	}
	return once.Do(r.Context(), c.guard, key, func(ctx context.Context) (receipt, error) {
		if c.journal != nil {
			if err := c.journal.Note(ctx, []byte(made.Key)); err != nil {
				return receipt{}, err
			}
		}
		return made, askProvider(ctx, c.provider, made)
	})
}

// problems are those of the HTTP door that have a refusal's reason.
var problems = map[error]middleware.Problem{
	once.ErrInFlight:       {Status: http.StatusConflict, Type: "in-flight"},
	once.ErrOutcomeUnknown: {Status: http.StatusConflict, Type: "outcome-unknown"},
	once.ErrNotStored:      {Status: http.StatusConflict, Type: "response-not-stored"},
	once.ErrUnavailable:    {Status: http.StatusServiceUnavailable, Type: "store-unavailable"},
	once.ErrNotKnownYet:    {Status: http.StatusServiceUnavailable, Type: "store-unavailable"},
}
