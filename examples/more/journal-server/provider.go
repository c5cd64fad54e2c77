package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"
)

// Definite answers of the provider. After any other error it is not known whether it has charged.
var (
	errDeclined = errors.New("the provider has declined the charge")
	errNoCharge = errors.New("the provider has no charge with this key")
)

// provider is the API of a payment provider. A call ends when its context is done.
type provider interface {
	// charge charges the customer once for each key, however often it is called. The error may be errDeclined.
	charge(ctx context.Context, key string, o order) (receipt string, err error)
	// find returns the receipt of the charge with this key, or errNoCharge.
	find(ctx context.Context, key string) (receipt string, err error)
}

// fakeProvider is a provider to try this program without one. A real provider is another company's service: nothing that it
// does can be in a transaction of ours, and so its table is not used outside of this file.
type fakeProvider struct{ db *database }

const providerTable = `create table if not exists provider_charges (
  id      text primary key, -- the idempotency key
  receipt text not null
);`

// cardLimit is the most that the fake provider charges at once. It declines more.
const cardLimit = 100_000

func (f fakeProvider) charge(ctx context.Context, key string, o order) (receipt string, err error) {
	if o.Amount > cardLimit {
		return "", errDeclined
	}
	_, err = f.db.ExecContext(ctx, "insert into provider_charges (id, receipt) values ($1, $2) on conflict (id) do nothing",
		key, uuid.NewString())
	if err != nil {
		return "", err
	}
	return f.find(ctx, key)
}

func (f fakeProvider) find(ctx context.Context, key string) (receipt string, err error) {
	err = f.db.QueryRowContext(ctx, "select receipt from provider_charges where id = $1", key).Scan(&receipt)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoCharge
	}
	return receipt, err
}
