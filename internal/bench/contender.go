package main

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// contender is one way to do what its group is about.
type contender struct {
	group, name string
	label       string // its row in the tables
	least       int    // fewer callers make no sense
	baseline    string // a name in its group, whose allocations are those of the handler and its server
	setUp       func(context.Context, conditions) (subject, error)
}

func (c contender) id() string { return c.group + "/" + c.name }

// conditions are what a contender is set up for.
type conditions struct {
	addr    string // of Redis
	store   store
	callers int
	pool    int    // connections that a client of Redis may have
	body    []byte // of requests and responses
	http    bool   // over loopback HTTP
	late    bool   // the client of Redis may answer later than a context's deadline
}

// newClient returns a client of Redis with go-redis's defaults, but for the pool, and ContextTimeoutEnabled, as the README
// advises. That costs or saves nobody anything but onceguard, so onceguard is measured without it as well.
func (c conditions) newClient() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: c.addr, PoolSize: c.pool, ContextTimeoutEnabled: !c.late})
}

// onDefaults sets a contender up on a client that may be late.
func onDefaults(
	setUp func(context.Context, conditions) (subject, error),
) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		c.late = true
		return setUp(ctx, c)
	}
}

// subject is a contender set up for a number of callers. Measurements follow one another.
type subject interface {
	// begin readies it for a measurement. The store is empty.
	begin(context.Context) error

	// caller returns what the caller of that number, from 0, does again and again. An error means that it was not
	// answered as it should have been.
	caller(number int) func() error

	// end is an error if that was not done for which the callers were given answers, so many to each.
	end(ctx context.Context, answers []int) error

	close() error
}

// contenders returns all that there are, in the order of the tables.
func contenders(http bool) []contender {
	if http {
		return webContenders(true)
	}
	return slices.Concat(commandContenders(), webContenders(false), lockContenders())
}

// groups returns the names of the groups in their order.
func groups(all []contender) []string {
	var names []string
	for _, c := range all {
		if !slices.Contains(names, c.group) {
			names = append(names, c.group)
		}
	}
	return names
}

// The groups.
const (
	first      = "first"      // a request with a fresh key
	replay     = "replay"     // a request that was completed before
	inFlight   = "in-flight"  // a request whose first one still runs
	duplicates = "duplicates" // eight callers send each request at about the same time
	locks      = "lock"       // take a fresh key and free it
)

// onDefaultsLabel is the row of onceguard where it is set up by onDefaults.
const onDefaultsLabel = "onceguard, client without `ContextTimeoutEnabled`"
