package system_test

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/sqljournal"
)

// check compares what the customers know with the effects, and ends what is unfinished.
func (k *soak) check() {
	k.t.Helper()
	if k.t.Failed() {
		return
	}
	k.customer.http.CloseIdleConnections()
	for _, p := range k.processes {
		if err := p.Wait(k.t); err != nil {
			k.t.Error(err)
		}
	}
	if k.redisForgets() {
		k.redis.FlushAll(k.t)
	}
	unfinished := k.endUnfinished()
	calm := k.shop
	calm.Patient = !k.redisAway
	again := serve(k.t, calm)
	for _, o := range k.orders {
		n := k.effects(k.t, o.key)
		isPaid, isSwept := unfinished[o.key]
		k.checkOrder(o, again.ask(k.t.Context(), o.key), n, isSwept, isPaid)
		if n := k.effects(k.t, o.key); n > 1 {
			k.t.Errorf("%d effects of %s in the end", n, o.key)
		}
	}
	if k.kills == 0 || k.broken == 0 || len(k.orders) < k.keys {
		k.t.Errorf("%d kills, %d broken connections, %d orders, want some, and all orders", k.kills, k.broken, len(k.orders))
	}
}

// checkOrder compares what the customers know of an order with its effects, and with what a retry gets now. isSwept is whether
// the row of its run was swept, and isPaid whether the provider had paid then.
func (k *soak) checkOrder(o *soakOrder, a answer, effects int, isSwept, isPaid bool) {
	k.t.Helper()
	switch {
	case isPaid && effects == 1:
		wantAnswer(k.t, "an order that was swept Done", a, "409 response-not-stored")
	case o.body != "" && effects == 1 && !isSwept:
		wantAnswer(k.t, "an order that is paid", a, "201 replay")
		if a.body != o.body {
			k.t.Errorf("order %s: two bodies: %s and %s", o.key, o.body, a.body)
		}
	case o.failure != "" && (effects == 0 || k.elsewhere && effects == 1):
		wantAnswer(k.t, "an order that has failed", a, "500 replay")
	case o.unknown && k.shop.AtMost && effects <= 1 && a.String() == "409 outcome-unknown":
	case o.unknown && k.elsewhere && effects == 0 && a.String() == "201": // its row was swept Free
	case o.unknown && k.elsewhere && !isSwept && a.String() == "500 replay": // its run was merely late
	case o.unknown && k.elsewhere && !isSwept && effects == 1 && a.String() == "201 replay": // so was this one
	default:
		k.t.Errorf("order %s: %d effects; the customers had %+v; swept: %t; a retry gets %v %s", o.key, effects, o, isSwept, a, a.body)
	}
}

// endUnfinished asks the provider about each run without an end, and returns those that have noted what they are, by
// key: whether the payment is made. With InTx there are none.
func (k *soak) endUnfinished() map[string]bool {
	k.t.Helper()
	var begun int
	err := k.db.QueryRowContext(k.t.Context(), "select count(*) from onceguard_journal where state = 1").Scan(&begun)
	if err == nil {
		_, err = k.db.ExecContext(k.t.Context(), "update onceguard_journal set until = until - "+k.database.Interval(2*time.Second)+" where state = 1")
	}
	if err != nil {
		k.t.Fatal(err)
	}
	if begun > 0 && !k.elsewhere {
		k.t.Errorf("%d rows are left without an end", begun)
	}
	ended := map[string]bool{}
	n, err := sqljournal.Intent(k.db, namespace, k.database.Kind.Options()...).Sweep(k.t.Context(), 0, time.Minute, func(ctx context.Context, u sqljournal.Unfinished) error {
		key := string(u.Note)
		paid := k.provider.count(key) > 0
		if u.Note != nil {
			ended[key] = paid
		}
		if paid {
			return u.Done(ctx, k.db, time.Hour, nil)
		}
		return u.Free(ctx, k.db)
	})
	if err != nil || n != begun {
		k.t.Errorf("Sweep found %d of %d rows: %v", n, begun, err)
	}
	return ended
}
