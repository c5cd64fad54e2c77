// Package pipeline sends commands to Redis over go-redis and returns the result of each. Package store calls it.
//
// A [Call] is one operation on a key: every command sent for it, retries included, until Redis answers or the operation
// times out. A command passes through these layers, and its reply returns through them as a value:
//
//	Call.Do         the only retry loop (call.go)
//	Call.send       sends one command, and again after a redirection (send.go)
//	roundTrip       submits it to the queue of its node, and waits for its result (send.go)
//	queue           batches the commands to one node (queue.go); the pacer decides the batch size (pacer.go)
//	worker          a goroutine that sends one batch after the other while commands wait (queue.go)
//	exec            sends a batch as go-redis commands or pipelines (exec.go), with a WAIT for replicas (replicas.go)
//
// The package does not know claims, tokens or leases.
//
// go-redis may take longer than a caller wants to wait. So a caller cancels its command and returns when the operation
// times out or the caller's context is done. A result that arrives after that goes to the Call's Late.
package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
)

// Config holds the settings of a Pipeline. Package lock describes them at WithOpTimeout and WithReplicas.
type Config struct {
	OpTimeout      time.Duration // the time for one operation, retries included
	Replicas       int           // how many replicas must acknowledge a durable write; 0 sends no WAIT
	ReplicaTimeout time.Duration // the timeout of WAIT
}

// Pipeline sends commands to one Redis deployment. Its methods may be called concurrently.
type Pipeline struct {
	client redis.UniversalClient
	config Config
	group  *background.Group

	retries atomic.Uint64 // see Stats
	givenUp atomic.Uint64

	contexts sharedContexts
	wakers   wakerPool
	router   router
}

// New returns a Pipeline on a client, which it does not close. group counts work that outlives a Call.
func New(client redis.UniversalClient, group *background.Group, config Config) *Pipeline {
	window := config.OpTimeout / 10
	p := &Pipeline{
		client: client, config: config, group: group,
		contexts: sharedContexts{window: window, lifetime: window + config.OpTimeout, base: group.Base()},
	}
	p.router.init(p)
	return p
}

// Node returns what identifies the node that has a key now, as far as is known. It sends nothing.
func (p *Pipeline) Node(key string) any { return p.router.node(key) }
