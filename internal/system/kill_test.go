package system_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// Two instances serve payments under load. The test repeatedly kills one and replaces it. In seven of eight kills a
// handler has begun and waits for its go-ahead, so the process dies inside the handler.
//
// By default there are 10 kills instead of 100: see redistest.Rounds.
//
// fault: process killed -9 under load, 100 times, at least 80 of them inside a handler
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, atMostOnce := range []bool{false, true} {
		t.Run(fmt.Sprintf("WithAtMostOnce=%t", atMostOnce), func(t *testing.T) {
			t.Parallel()
			k := newKilling(t, atMostOnce)
			k.load()
			replays := k.askAgain()
			k.end()

			f := k.counts
			t.Logf("%d kills, %d of them inside a handler; %d orders, %d second runs, %d unknown outcomes",
				f.kills, f.inside, len(k.orders), f.again, f.unknown)
			t.Logf("%d connections broke, %d requests were in flight, %d replays afterwards", f.broken, f.inFlight, replays)
			if inside := k.kills * 8 / 10; f.inside < inside || replays < len(k.orders)-f.unknown {
				t.Errorf("want at least %d kills inside a handler, and a replay of each order", inside)
			}
			if f.broken == 0 || f.inFlight == 0 || f.unknown == 0 && atMostOnce || f.again == 0 && !atMostOnce {
				t.Error("want broken connections, duplicates in flight, and unknown outcomes or second runs")
			}
		})
	}
}

// killing is a service whose instances are killed, with its customers and all that they know.
type killing struct {
	t          *testing.T
	atMostOnce bool
	kills      int // number of kills in the test
	server     *redistest.Server
	desk       *httptest.Server // asked by each run whether it may answer
	http       *http.Client
	doomed     chan *instance // to be killed

	mu      sync.Mutex
	all     []*instance // by name, which is a number
	up      []*instance // instances that serve and are not doomed
	orders  []*order    // by key, which is a number
	open    []*order    // not final, as of the last pick
	closing bool        // no new orders and no more kills
	counts  struct{ kills, inside, again, unknown, broken, inFlight, replays int }
}

// instance is a server in a separate process.
type instance struct {
	process   *redistest.Process
	url       string
	killAtRun int // it is killed at this run or a later one
	runs      int // runs that it has begun
	doomed    bool
}

// order is a payment that a customer wants once. Each has its own key.
type order struct {
	key     int
	placed  time.Time
	runs    []*run // in the order in which they asked the desk
	receipt string // body of the 201, empty before
	unknown bool   // a customer got outcome-unknown
}

// final reports whether the answer can no longer change.
func (o *order) final() bool { return o.receipt != "" || o.unknown }

// run is one run of the handler.
type run struct {
	at       *instance
	receipt  string // that it answers with
	withheld bool   // it did not get its go-ahead, so it cannot have answered
}

func newKilling(t *testing.T, atMostOnce bool) *killing {
	t.Helper()
	k := &killing{
		t: t, atMostOnce: atMostOnce, kills: redistest.Rounds(10, 100), server: redistest.Start(t),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: 2 * patience}, doomed: make(chan *instance, 1),
	}
	k.desk = httptest.NewServer(http.HandlerFunc(k.run))
	t.Cleanup(k.desk.Close)
	return k
}

// load runs the customers, and replaces the instances that are doomed. It returns when every order is final.
func (k *killing) load() {
	k.start()
	k.start()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var busy sync.WaitGroup
		for range 12 {
			busy.Go(k.customer)
		}
		busy.Wait()
	}()
	for {
		select {
		case v := <-k.doomed:
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // if the handler goes on: in Settle, or before the response
			v.process.Kill(k.t)
			k.start()
		case <-gone:
			return
		}
	}
}

// start starts another instance, and returns when it serves.
func (k *killing) start() {
	name := strconv.Itoa(len(k.all))
	v := &instance{killAtRun: 1 + rand.IntN(20)}
	v.process = redistest.Run(k.t, "payments-server", k.server.Addr(), k.desk.URL, name, strconv.FormatBool(k.atMostOnce))
	k.mu.Lock()
	k.all = append(k.all, v)
	k.mu.Unlock()
	v.url = v.process.Line(k.t)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.up = append(k.up, v)
}

// run is the desk. It gives a handler its go-ahead, or dooms its instance, or both.
func (k *killing) run(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	v, o := k.all[number(r.FormValue("instance"))], k.orders[number(r.FormValue("key"))]
	asked := &run{at: v, receipt: fmt.Sprintf("run %d of order %d", len(o.runs), o.key)}
	k.checkRun(o)
	o.runs = append(o.runs, asked)
	v.runs++
	if !k.closing && !v.doomed && v.runs >= v.killAtRun && len(k.up) == 2 {
		v.doomed = true
		k.up = slices.DeleteFunc(k.up, func(other *instance) bool { return other == v })
		asked.withheld = k.counts.kills%8 != 7
		if k.counts.kills++; asked.withheld {
			k.counts.inside++
		}
		k.closing = k.counts.kills == k.kills
		k.doomed <- v
	} else {
		asked.withheld = v.doomed
	}
	k.mu.Unlock()
	if asked.withheld {
		<-r.Context().Done() // the instance dies
		return
	}
	_, _ = io.WriteString(w, asked.receipt)
}

func number(s string) int {
	n, err := strconv.Atoi(strings.Trim(s, `"`))
	if err != nil {
		panic(err)
	}
	return n
}

// checkRun checks that an order may run now. The caller holds mu.
func (k *killing) checkRun(o *order) {
	for _, earlier := range o.runs {
		if !earlier.at.doomed {
			k.t.Errorf("order %d runs a second time, and the instance of the first run is alive", o.key)
		}
	}
	if len(o.runs) > 0 {
		k.counts.again++
		if k.atMostOnce {
			k.t.Errorf("order %d runs a second time", o.key)
		}
		k.checkAfterLease(o, "a second run")
	}
}

// checkAfterLease checks that the lease of an order's first claim has expired. The caller holds mu.
func (k *killing) checkAfterLease(o *order, what string) {
	if since := time.Since(o.placed); since < killLease-10*time.Millisecond {
		k.t.Errorf("order %d: %s %v after it was placed, which is before the lease expired", o.key, what, since)
	}
}

// customer places orders, and repeats those that are not final. It sends each one to three times at once.
func (k *killing) customer() {
	for o := k.pick(); o != nil && !k.t.Failed(); o = k.pick() {
		var clicks sync.WaitGroup
		for range 1 + rand.IntN(3) {
			clicks.Go(func() { k.ask(o) })
		}
		clicks.Wait()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // the customer thinks
	}
}

// pick returns a new order or an open one, and nil after the last.
func (k *killing) pick() *order {
	const most = 100
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = slices.DeleteFunc(k.open, (*order).final)
	switch n := len(k.open); {
	case n == 0 && k.closing:
		return nil
	case n > 0 && (k.closing || n == most || rand.IntN(2) == 0):
		return k.open[rand.IntN(n)]
	}
	o := &order{key: len(k.orders), placed: time.Now()}
	k.orders, k.open = append(k.orders, o), append(k.open, o)
	return o
}

// ask sends the order once, to any instance, and checks the response.
func (k *killing) ask(o *order) {
	k.mu.Lock()
	v, final := k.up[rand.IntN(len(k.up))], o.final()
	k.mu.Unlock()
	a, err := pay(k.t, k.http, v.url, strconv.Itoa(o.key))
	k.mu.Lock()
	defer k.mu.Unlock()
	var p middleware.Problem
	_ = json.Unmarshal([]byte(a.body), &p) // not a problem
	problem := strings.TrimPrefix(p.Type, "urn:onceguard:problem:")
	switch {
	case err != nil && v.doomed:
		k.counts.broken++
	case err != nil:
		k.t.Errorf("order %d, sent to an instance that was not killed: %v", o.key, err)
	case a.status == http.StatusCreated && (a.replayed || !final):
		k.paid(o, a)
	case a.status == http.StatusConflict && problem == "in-flight" && !final:
		k.counts.inFlight++
	case a.status == http.StatusConflict && problem == "outcome-unknown" && k.atMostOnce && o.receipt == "":
		if !o.unknown {
			k.counts.unknown++
			k.checkAfterLease(o, problem)
		}
		o.unknown = true
	default:
		k.t.Errorf("order %d: got %+v; final before: %t; customers had %q", o.key, a, final, o.receipt)
	}
}

type answer struct {
	status   int
	replayed bool
	body     string
}

// pay sends a payment once. Without GetBody, the transport cannot repeat it.
func pay(t *testing.T, client *http.Client, url, key string) (answer, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/payments", strings.NewReader(`{"amount":1250}`))
	if err != nil {
		return answer{}, err
	}
	r.GetBody = nil
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", strconv.Quote(key))
	res, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", string(body)}, err
}

// paid checks a 201. A handler must have made the payment, and all customers must get the same receipt. The caller
// holds mu.
func (k *killing) paid(o *order, a answer) {
	if a.replayed {
		k.counts.replays++
	}
	made := slices.ContainsFunc(o.runs, func(r *run) bool { return r.receipt == a.body && !r.withheld })
	if !made || o.unknown || o.receipt != "" && o.receipt != a.body {
		k.t.Errorf("order %d: got %+v; customers had %q, unknown: %t; %d runs", o.key, a, o.receipt, o.unknown, len(o.runs))
	}
	o.receipt = a.body
}

// askAgain repeats each order, which is replayed if its outcome is known. It returns the number of replays.
func (k *killing) askAgain() int {
	before := k.counts.replays
	for _, o := range k.orders {
		k.ask(o)
	}
	return k.counts.replays - before
}

// end stops the remaining instances. Each receipt comes from the last run of its order, and Redis has a key for each order.
func (k *killing) end() {
	k.http.CloseIdleConnections()
	for _, v := range k.up {
		if err := v.process.Wait(k.t); err != nil {
			k.t.Error(err)
		}
	}
	for _, o := range k.orders {
		if !o.unknown && o.receipt != o.runs[len(o.runs)-1].receipt {
			k.t.Errorf("order %d ran again after it was answered with %s: %d runs", o.key, o.receipt, len(o.runs))
		}
	}
	if got := len(k.server.Keys(k.t)); got != len(k.orders) {
		k.t.Errorf("keys in Redis: got %d, want one for each of %d orders", got, len(k.orders))
	}
}
