package system_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// killLease is short, so that the keys of a killed process soon become free, and long enough for a process on a busy
// machine to renew.
const killLease = 5 * time.Second

// ledger is a list in Redis, in another database than that of the middleware. It records what has happened, in order:
//
//	up <instance> <url>            a server answers
//	run <instance> <key> <nonce>   a handler has begun to run
//	kill <instance>                the instance is about to be killed
//	quiet                          every order is answered
const (
	ledger         = "ledger"
	ledgerDatabase = 1
)

// goAhead returns the list on which a run waits for permission to answer.
func goAhead(nonce string) string { return "go-ahead:" + nonce }

// receipt is the body of the response to a payment. The nonce identifies the run of the handler.
type receipt struct {
	Key   int    `json:"key"`
	Nonce string `json:"nonce"`
}

// servePayments is the program of an instance. Its arguments are the address of Redis, the name of the instance, and
// "true" for WithAtMostOnce. It serves until its input ends or it is killed.
func servePayments(args []string, in io.Reader, _ io.Writer) error {
	addr, name, atMostOnce := args[0], args[1], args[2] == "true"
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	book := openLedger(addr)
	defer book.Close()

	locker := lock.New(client, "payments", lock.WithTTL(killLease), lock.WithOpTimeout(patience))
	opts := []middleware.Option{middleware.WithRequired()}
	if atMostOnce {
		opts = append(opts, middleware.WithAtMostOnce())
	}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), opts...)
	server := &http.Server{Handler: once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := strconv.Atoi(strings.Trim(r.Header.Get("Idempotency-Key"), `"`))
		paid := receipt{Key: key, Nonce: uuid.NewString()}
		if err == nil {
			err = book.RPush(ctx, ledger, fmt.Sprintf("run %s %d %s", name, paid.Key, paid.Nonce)).Err()
		}
		if err == nil {
			err = book.BLPop(ctx, patience, goAhead(paid.Nonce)).Err()
		}
		if err != nil {
			panic(err)
		}
		writeJSON(w, http.StatusCreated, paid)
	}))}

	listener, err := redistest.ListenAlone()
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := book.RPush(ctx, ledger, fmt.Sprintf("up %s http://%s", name, listener.Addr())).Err(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = errors.Join(server.Shutdown(ctx), locker.Close(ctx))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// openLedger returns a client of the ledger. It does not retry, so it pushes nothing twice.
func openLedger(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, DB: ledgerDatabase, MaxRetries: -1, PoolSize: 100, ReadTimeout: patience,
	})
}

// order is a payment that a customer wants once. Each has its own key. killing.mu guards all fields except key and
// placed.
type order struct {
	key    int
	placed time.Time

	runs    []*run // in the order of the ledger
	receipt string // body of the 201, empty before
	nonce   string // nonce in the receipt
	unknown bool   // a customer got outcome-unknown
}

// final reports whether the answer can no longer change. The caller holds killing.mu.
func (o *order) final() bool { return o.receipt != "" || o.unknown }

// run is one run of the handler.
type run struct {
	nonce    string
	at       *instance
	withheld bool // it did not get its go-ahead, so it cannot have answered
}

func (r *run) String() string { return fmt.Sprintf("%s (withheld: %t)", r.nonce, r.withheld) }

// customer places orders, and repeats those that are not final. It sends each one to three times at once.
func (k *killing) customer(ctx context.Context, rng *rand.Rand) {
	for {
		o := k.pick(rng)
		if o == nil || ctx.Err() != nil || k.t.Failed() {
			return
		}
		var clicks sync.WaitGroup
		for range 1 + rng.IntN(3) {
			v := k.pickInstance(rng)
			clicks.Go(func() { k.ask(ctx, o, v) })
		}
		clicks.Wait()
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // the customer thinks
	}
}

// pick returns a new order, an open one, or any. While closing it returns only open ones, and nil after the last.
func (k *killing) pick(rng *rand.Rand) *order {
	const most = 100
	k.mu.Lock()
	defer k.mu.Unlock()
	switch n, dice := len(k.open), rng.IntN(4); {
	case n == 0 && k.closing:
		return nil
	case n > 0 && (k.closing || n == most || dice < 2):
		return k.open[rng.IntN(n)]
	case len(k.orders) > 0 && dice == 2:
		return k.orders[rng.IntN(len(k.orders))]
	}
	o := &order{key: len(k.orders), placed: time.Now()}
	k.orders, k.open = append(k.orders, o), append(k.open, o)
	return o
}

func (k *killing) pickInstance(rng *rand.Rand) *instance {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.up[rng.IntN(len(k.up))]
}

// ask sends the order once and checks the response.
func (k *killing) ask(ctx context.Context, o *order, v *instance) {
	k.mu.Lock()
	final := o.final()
	k.mu.Unlock()
	a, err := pay(ctx, k.http, v.url, o.key)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counts.asked++
	switch {
	case ctx.Err() != nil: // the test has failed
	case err != nil && v.doomed:
		k.counts.broken++
	case err != nil:
		k.t.Errorf("order %d, sent to an instance that was not killed: %v", o.key, err)
	case a.status == http.StatusCreated && (a.replayed || !final):
		k.paid(o, a)
	case a.status == http.StatusConflict && a.problem() == "in-flight" && !final:
		k.counts.inFlight++
	case a.status == http.StatusConflict && a.problem() == "outcome-unknown" && k.atMostOnce:
		k.recordUnknown(o)
	default:
		k.t.Errorf("order %d: got %d %s, replayed: %t; final before: %t", o.key, a.status, a.body, a.replayed, final)
	}
}

// paid checks a 201. A handler must have made the payment, and all customers must get the same receipt. The caller
// holds mu.
func (k *killing) paid(o *order, a answer) {
	if a.replayed {
		k.counts.replays++
	}
	var got receipt
	err := json.Unmarshal([]byte(a.body), &got)
	made := slices.ContainsFunc(o.runs, func(r *run) bool { return r.nonce == got.Nonce && !r.withheld })
	switch {
	case err != nil, got.Key != o.key, !made, o.unknown, o.receipt != "" && o.receipt != a.body:
		k.t.Errorf("order %d: got %s, replayed: %t; customers had %q, unknown: %t; runs %s",
			o.key, a.body, a.replayed, o.receipt, o.unknown, o.runs)
	case o.receipt == "":
		o.receipt, o.nonce = a.body, got.Nonce
		k.close(o)
	}
}

// recordUnknown records an outcome-unknown. The caller holds mu.
func (k *killing) recordUnknown(o *order) {
	if o.receipt != "" {
		k.t.Errorf("order %d: got outcome-unknown, and before %s", o.key, o.receipt)
	}
	if o.unknown {
		return
	}
	o.unknown = true
	k.checkAfterLease(o, "outcome-unknown")
	k.counts.unknown++
	k.close(o)
}

func (k *killing) close(o *order) {
	k.open = slices.DeleteFunc(k.open, func(other *order) bool { return other == o })
}

// answer is the response that a customer got.
type answer struct {
	status   int
	replayed bool
	body     string
}

// problem returns the name of the problem in the body, or "" if there is none.
func (a answer) problem() string {
	var p middleware.Problem
	_ = json.Unmarshal([]byte(a.body), &p) // not a problem
	return strings.TrimPrefix(p.Type, "urn:onceguard:problem:")
}

// pay sends the request once. Without GetBody, the transport cannot repeat it.
func pay(ctx context.Context, client *http.Client, url string, key int) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/payments", strings.NewReader(`{"amount":1250}`))
	if err != nil {
		return answer{}, err
	}
	r.GetBody = nil
	r.SetBasicAuth("ann", "")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", strconv.Quote(strconv.Itoa(key)))
	res, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", string(body)}, err
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left
}
