package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

const (
	price       = 4900 // of one piece, in cents
	maxQuantity = 9
)

// order charges a card and places an order. It is the handler of both shops. It pays no heed to a client that has left:
// a charge that has been sent to a payment provider cannot be called back.
func (d *Demo) order(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Quantity int `json:"quantity"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Quantity < 1 || body.Quantity > maxQuantity {
		http.Error(w, fmt.Sprintf(`The body must be JSON like {"quantity":1}, and the quantity 1 to %d.`, maxQuantity), http.StatusBadRequest)
		return
	}
	time.Sleep(d.cfg.Work) // the payment provider is busy
	charged := body.Quantity * price
	if rec := recordOf(r.Context()); rec != nil {
		rec.shop.placed(rec, charged)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"order": uuid.NewString(), "quantity": body.Quantity, "cents": charged})
}

// protect puts next behind Idempotency, on each of the instances. The header X-Instance chooses the instance, as a load
// balancer would, and "Prefer: wait=0" (RFC 7240 section 4.3) the one whose duplicates do not wait. Neither header
// changes what the request is: key and fingerprint do not contain them.
func (d *Demo) protect(next http.Handler) http.Handler {
	var waiting, hasty [instances]http.Handler
	for i, locker := range d.lockers {
		waiting[i] = d.idempotent(locker, middleware.WithWait(10*time.Second))(next)
		hasty[i] = d.idempotent(locker)(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := instanceOf(r) - 1
		if r.Header.Get("Prefer") == "wait=0" {
			hasty[i].ServeHTTP(w, r)
			return
		}
		waiting[i].ServeHTTP(w, r)
	})
}

// idempotent is all that the protected shop has and the other has not.
func (d *Demo) idempotent(locker *lock.Locker, more ...middleware.Option) func(http.Handler) http.Handler {
	return middleware.Idempotency(locker, keyfunc.Standard(keyfunc.User(d.cfg.Visitor)), append(more,
		middleware.WithRequired(),
		middleware.WithAtMostOnce(),
		middleware.WithObserver(d.Observe))...)
}

// instanceOf returns the number of the instance that the request asks for, from 1.
func instanceOf(r *http.Request) int {
	if r.Header.Get("X-Instance") == "2" {
		return 2
	}
	return 1
}
