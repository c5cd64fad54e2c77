package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/onceguard/onceguard/once"
)

// payer pays the orders that have no receipt. Every instance has one. They share the work by once.Do: one of them pays
// an order, and the others find it in flight or get its receipt.
type payer struct {
	db       *sql.DB
	guard    *once.Guard
	provider string
}

type order struct {
	key    string
	amount int64
}

// work pays until ctx is done.
func (p *payer) work(ctx context.Context) error {
	for {
		orders, err := p.unpaid(ctx)
		for _, o := range orders {
			if err := p.settle(context.WithoutCancel(ctx), o); err != nil {
				log.Print(err) // the order stays unpaid, and is tried again
			}
		}
		if err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *payer) unpaid(ctx context.Context) (orders []order, err error) {
	rows, err := p.db.QueryContext(ctx, "select key, amount from orders where receipt is null limit 100")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.key, &o.amount); err != nil {
			return orders, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

// settle pays an order and writes its receipt. A worker that dies in between has paid, and the next one gets the receipt:
// from Redis, or from the provider, because it sends the same key.
func (p *payer) settle(ctx context.Context, o order) error {
	key := once.Key{Operation: "pay", Scope: once.Anyone, ID: o.key, Input: o.amount}
	receipt, _, err := once.Do(ctx, p.guard, key, func(ctx context.Context) (string, error) {
		return p.pay(ctx, o)
	})
	if err != nil {
		return err
	}
	_, err = p.db.ExecContext(ctx, "update orders set receipt = $1 where key = $2", receipt, o.key)
	return err
}

// pay asks the provider, which pays once for each key.
func (p *payer) pay(ctx context.Context, o order) (receipt string, err error) {
	if p.provider == "" {
		log.Print("paying ", o.amount)
		return "paid", nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.provider, strings.NewReader(fmt.Sprint(o.amount)))
	if err != nil {
		return "", err
	}
	r.Header.Set("Idempotency-Key", o.key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1000))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the provider answers %s", res.Status)
	}
	return string(body), err
}
