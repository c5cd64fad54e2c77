package system_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// buy places one order after the other, each by several requests at once.
func (k *soak) buy(ctx context.Context) {
	for {
		o := k.place()
		if o == nil || ctx.Err() != nil {
			return
		}
		var clicks sync.WaitGroup
		for range k.clicks {
			clicks.Go(func() {
				for !k.ask(ctx, o) && ctx.Err() == nil && !k.t.Failed() {
					time.Sleep(rand.N(20 * time.Millisecond)) // the customer thinks
				}
			})
		}
		clicks.Wait()
	}
}

// place returns a new order, or nil when there are enough.
func (k *soak) place() *soakOrder {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop && len(k.orders) >= k.keys || k.t.Failed() {
		return nil
	}
	o := &soakOrder{key: strconv.Itoa(len(k.orders))}
	k.orders = append(k.orders, o)
	return o
}

// ask sends the order once, and reports whether the answer is final.
func (k *soak) ask(ctx context.Context, o *soakOrder) bool {
	k.mu.Lock()
	c := customer{http: k.customer.http, url: k.urls[rand.N(len(k.urls))]}
	k.mu.Unlock()
	a := c.ask(ctx, o.key)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch a.String() {
	case "broken":
		k.broken++
		return false
	case "201", "201 replay":
		if o.body != "" && o.body != a.body || o.failure != "" {
			k.t.Errorf("order %s: two bodies: %s, and before %s%s", o.key, a.body, o.body, o.failure)
		}
		o.body = a.body
		return true
	case "500 replay":
		if o.failure != "" && o.failure != a.body || o.body != "" || k.shop.Journal == transactional {
			k.t.Errorf("order %s: %s is stored, and before %s%s", o.key, a.body, o.body, o.failure)
		}
		o.failure = a.body
		return true
	case "409 outcome-unknown":
		o.unknown = true
		if k.shop.Journal == transactional {
			k.t.Errorf("order %s: outcome-unknown", o.key)
		}
		return k.elsewhere
	case "500", "409 in-flight", "503 store-unavailable", "503 commit-unknown":
		return false
	}
	k.t.Errorf("order %s: got %v: %s", o.key, a, a.body)
	return true
}
