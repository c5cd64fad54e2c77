package main

import (
	"errors"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// redisServer is the Redis server of this process.
type redisServer struct {
	client *redis.Client        // nil for none
	name   string               // for the log, without credentials
	mini   *miniredis.Miniredis // nil for a real server, and for none
}

// openRedis returns a client of the server at the URL, which may be down, or of an embedded one if the URL is empty. The
// URL "none" means no Redis.
func openRedis(url string) (*redisServer, error) {
	switch url {
	case "none":
		return &redisServer{name: "none"}, nil
	case "":
	default:
		options, err := redis.ParseURL(url)
		if err != nil { // whose text may contain the password
			return nil, errors.New("the Redis URL is malformed: want redis://[user:password@]host:port[/database]")
		}
		options.ContextTimeoutEnabled = true // calls end at their deadlines
		return &redisServer{client: redis.NewClient(options), name: options.Addr}, nil
	}
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	m.ClockTTL(true) // expire keys in real time, not only when a test moves the clock
	client := redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
	return &redisServer{client: client, name: "embedded miniredis, forgotten at exit", mini: m}, nil
}

// locker returns the service's Locker.
func (r *redisServer) locker(opTimeout time.Duration) *lock.Locker {
	if r.client == nil {
		return lock.None(namespace)
	}
	return lock.New(r.client, namespace, lock.WithOpTimeout(opTimeout))
}

func (r *redisServer) embedded() bool { return r.mini != nil }

func (r *redisServer) close() error {
	if r.client == nil {
		return nil
	}
	err := r.client.Close()
	if r.embedded() {
		r.mini.Close()
	}
	return err
}
