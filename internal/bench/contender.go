// The contenders of the comparison, and what a suite of contenders is.

package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/middleware"
)

// contender is one way to do what its group is about.
type contender struct {
	group, name string
	label       string // of its row in the tables
	baseline    string // names the contender in its group whose allocations are those of the handler; may be empty
	least       int    // callers that it needs
	late        bool   // its Redis client is without ContextTimeoutEnabled
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
	db       int    // the database in Redis
	body     []byte // of requests and responses
	late     bool   // the Redis client may answer later than a context's deadline
}

// newClient returns a client with go-redis's defaults, but for the pool and for ContextTimeoutEnabled, which the README
// advises. The latter makes a difference to onceguard alone, so onceguard is measured without it as well.
func (c conditions) newClient() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: c.server.addr, DB: c.db, PoolSize: c.pool, ContextTimeoutEnabled: !c.late})
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
	first      = "first"      // requests with fresh keys
	replay     = "replay"     // requests that were completed before
	inFlight   = "in-flight"  // requests whose first one still runs
	duplicates = "duplicates" // requests that eight callers send at about the same time
	locks      = "lock"       // taking fresh keys and freeing them
)

// suite is what one run measures and how its tables are arranged.
type suite struct {
	contenders  []contender  // in the order of the tables within a group
	groups      []group      // in the order of the tables
	comparisons []comparison // the rows of the table of ratios
	rate        rateUnit
	served      bool          // the sites are in processes of their own
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

// comparisonSuite is that of the comparison with the bare commands and with others.
func comparisonSuite() suite {
	return suite{
		contenders: contenders(),
		groups: []group{
			{first, "First request"},
			{replay, "Replay"},
			{inFlight, "Duplicate in flight"},
			{duplicates, "Eight at a time: the first one takes 2 ms, the others wait for its response"},
			{locks, "Lock: acquire and release"},
		},
		comparisons: comparisons,
		rate:        rateUnit{"thousands a second", 1000, "%.1f"},
		warmUp:      200 * time.Millisecond,
	}
}

// contenders returns those of the comparison.
func contenders() []contender {
	const (
		set     = "bare: `SET NX GET PX`"
		setEval = set + ", `EVALSHA`"
		get     = "bare: `GET`"
		auto    = ", AutoPipeline"
		duplex  = ", AutoPipeline, full duplex"
		fiber   = "fiber v3 idempotency"
		ours    = "onceguard"
		late    = "onceguard, client without `ContextTimeoutEnabled`"
	)
	patient := openOurs(middleware.WithWait(10 * time.Second))
	protected := openOurs()
	half, full := autoPipelined(false), autoPipelined(true)
	return []contender{
		{group: first, name: "bare", label: setEval, setUp: firsts(openBare(oneByOne))},
		{group: first, name: "bare-auto", label: setEval + auto, setUp: firsts(openBare(half))},
		{group: first, name: "bare-auto-duplex", label: setEval + duplex, setUp: firsts(openBare(full))},
		{group: first, name: "handler", label: "the handler alone, net/http", setUp: unprotected(openHandler)},
		{group: first, name: "fiber-handler", label: "the handler alone, fiber", setUp: unprotected(openFiberHandler)},
		{group: first, name: "onceguard", label: ours, baseline: "handler", setUp: firsts(protected)},
		{group: first, name: "onceguard-late", label: late, late: true, baseline: "handler", setUp: firsts(protected)},
		{group: first, name: "fiber", label: fiber, baseline: "fiber-handler", setUp: firsts(openFiber)},

		{group: replay, name: "bare-get", label: get, setUp: replays(openBareGet(oneByOne))},
		{group: replay, name: "bare-get-auto", label: get + auto, setUp: replays(openBareGet(half))},
		{group: replay, name: "bare-get-auto-duplex", label: get + duplex, setUp: replays(openBareGet(full))},
		{group: replay, name: "bare-claim", label: set, setUp: replays(openBare(oneByOne))},
		{group: replay, name: "onceguard", label: ours, setUp: replays(protected)},
		{group: replay, name: "onceguard-late", label: late, late: true, setUp: replays(protected)},
		{group: replay, name: "fiber", label: fiber, setUp: replays(openFiber)},

		// fiber does not refuse a duplicate in flight: it waits.
		{group: inFlight, name: "bare-claim", label: set, setUp: inFlights(openBare(oneByOne))},
		{group: inFlight, name: "onceguard", label: ours, setUp: inFlights(protected)},

		{group: duplicates, name: "onceguard", label: ours, least: crowd, setUp: crowds(patient)},
		{group: duplicates, name: "fiber", label: fiber, least: crowd, setUp: crowds(openFiber)},

		{group: locks, name: "bare", label: "bare: `SET NX PX`, `EVALSHA`", setUp: locking(openBareLock)},
		{group: locks, name: "onceguard", label: ours, setUp: locking(openOurLock)},
		{group: locks, name: "onceguard-late", label: late, late: true, setUp: locking(openOurLock)},
		{group: locks, name: "redislock", label: "bsm/redislock", setUp: locking(openRedislock)},
		{group: locks, name: "redsync", label: "redsync", setUp: locking(openRedsync)},
		{group: locks, name: "rueidislock", label: "rueidislock", setUp: locking(openRueidislock)},
	}
}
