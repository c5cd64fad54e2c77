// Package pipeline sends commands to Redis over go-redis, and returns the result of each.
//
// A [Call] is one operation on a key: every command sent for it, retries included, until Redis answers or the operation
// times out. A command goes down through these layers, and its reply comes back up as a value:
//
//	Call.Do         the only retry loop
//	Call.Send       one command once, and again where the server names another node (send.go)
//	roundTrip       the one decision: inline, in the caller's goroutine, or queued for a worker (send.go)
//	queue           commands to one node, in batches (queue.go); the pacer says how large, and which are too late
//	worker          sends one batch after the other (worker.go)
//	exec            a batch as go-redis commands or pipelines (exec.go), with a WAIT for replicas (replicas.go)
//
// The package knows nothing of claims, tokens or leases. A caller never waits longer than its operation may take, or
// than its context lasts, though go-redis may: then the command is abandoned, and its result, if one comes, goes to the
// Call's Late.
package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
)

// Config is what a Pipeline is to keep to.
type Config struct {
	OpTimeout      time.Duration // of one operation
	Replicas       int           // that must have what is written durably; 0 for none
	ReplicaTimeout time.Duration // for them to have it
}

// Pipeline sends commands to one Redis deployment. Its methods may be called concurrently.
type Pipeline struct {
	client redis.UniversalClient
	config Config
	group  *background.Group

	honorsDeadlines bool        // the client returns when a context's deadline is over
	answered        atomic.Bool // at least once: go-redis's first handshake takes locks that heed no deadline

	deadlines       deadlines // of batches that workers send: they end when no caller waits any more
	inlineDeadlines deadlines // of commands sent inline: they end when the first caller has to return
	waiters         waiterPool
	workers         *Workers
	router          router
}

// New returns a Pipeline on a client, which stays the caller's. What outlives a call is counted in group.
func New(client redis.UniversalClient, group *background.Group, workers *Workers, config Config) *Pipeline {
	open := config.OpTimeout / 10
	p := &Pipeline{
		client: client, config: config, group: group, workers: workers,
		honorsDeadlines: honorsDeadlines(client) && config.Replicas == 0,
		deadlines:       deadlines{open: open, length: open + config.OpTimeout},
		inlineDeadlines: deadlines{open: open, length: config.OpTimeout},
	}
	p.router.init(p)
	return p
}

// honorsDeadlines reports whether client returns when a context's deadline is over. A Cluster's client is not known to:
// it asks other nodes for the slots in between. What is excluded are the parts of go-redis that get no context.
func honorsDeadlines(client redis.UniversalClient) bool {
	single, ok := client.(*redis.Client)
	if !ok {
		return false
	}
	o := single.Options()
	return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 &&
		o.Limiter == nil && o.CredentialsProvider == nil && o.StreamingCredentialsProvider == nil
}
