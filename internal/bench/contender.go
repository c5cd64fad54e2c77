// The contenders of the comparison, and what a suite of contenders is.

package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// contender is one way to do what its group is about.
type contender struct {
	group, name string
	label       string // of its row in the tables
	setUp       setUp
	*subject    // nil until it is set up
}

func (c contender) id() string { return c.group + "/" + c.name }

// setUp makes a subject for the conditions. A contender has one for each number of callers.
type setUp func(context.Context, conditions) (*subject, error)

// conditions are what a contender is set up for.
type conditions struct {
	server   *server
	database *database // nil: not needed
	callers  int
	core     string // of a server's process; empty if it is not pinned
	pool     int    // connections that a Redis client may have
	body     []byte // of requests and responses
}

// newClient returns a client with go-redis's defaults, but for the pool.
func (c conditions) newClient() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: c.server.addr, PoolSize: c.pool})
}

// subject is a contender that is set up. It is measured several times.
type subject struct {
	// begin prepares a measurement. Redis is empty. It may be nil.
	begin func(context.Context) error

	// caller returns what caller i, counted from 0, repeats. An error means that the answer was wrong.
	caller func(i int) func() error

	// end returns an error unless the answers, counted by caller, were earned: what they promise has been done.
	end func(ctx context.Context, answers []int) error

	close func() error
}

// The groups.
const (
	first  = "first"  // requests with fresh keys
	replay = "replay" // requests that were completed before
	locks  = "lock"   // taking fresh keys and freeing them
)

// suite is what one run measures and how its tables are arranged.
type suite struct {
	contenders  []contender  // in the order of the tables within a group
	groups      []group      // in the order of the tables
	comparisons []comparison // the rows of the table of ratios
	rate        rateUnit
	warmUp      time.Duration // the most that the first measurement of each contender takes, which does not count
}

type group struct{ name, title string }

// comparison compares the first contender with the fastest of the others.
type comparison struct{ label, ids string }

// rateUnit is how rates are written.
type rateUnit struct {
	name   string
	size   float64
	format string
}

var (
	groups    = []group{{first, "First request"}, {replay, "Replay"}, {locks, "Lock: acquire and release"}}
	thousands = rateUnit{"thousands a second", 1000, "%.1f"}
)

// comparisonSuite is that of the comparison with the bare commands and with lock libraries, in this process.
func comparisonSuite() suite {
	return suite{
		contenders: []contender{
			{group: first, name: "bare", label: "bare: `SET NX GET PX`, `EVALSHA`", setUp: firsts(openBare)},
			{group: first, name: "onceguard", label: "onceguard", setUp: firsts(openOurs)},
			{group: replay, name: "bare-get", label: "bare: `GET`", setUp: replays(openBareGet)},
			{group: replay, name: "onceguard", label: "onceguard", setUp: replays(openOurs)},
			{group: locks, name: "bare", label: "bare: `SET NX PX`, `EVALSHA`", setUp: locking(openBareLock)},
			{group: locks, name: "onceguard", label: "onceguard", setUp: locking(openOurLock)},
			{group: locks, name: "redislock", label: "bsm/redislock", setUp: locking(openRedislock)},
			{group: locks, name: "redsync", label: "redsync", setUp: locking(openRedsync)},
			{group: locks, name: "rueidislock", label: "rueidislock", setUp: locking(openRueidislock)},
		},
		groups: groups,
		comparisons: []comparison{
			{"first request / the bare two commands", "first/onceguard first/bare"},
			{"replay / bare `GET`", "replay/onceguard replay/bare-get"},
			{"acquire and release / bare", "lock/onceguard lock/bare"},
			{"acquire and release / the best of the other libraries in each round",
				"lock/onceguard lock/redislock lock/redsync lock/rueidislock"},
		},
		rate:   thousands,
		warmUp: 200 * time.Millisecond,
	}
}
