package main

import (
	"errors"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// redisServer is the Redis server of this process.
type redisServer struct {
	client *redis.Client
	name   string               // for the log, without credentials
	mini   *miniredis.Miniredis // nil for a real server
}

// openRedis returns a client of the server at the URL, which may be down, or of an embedded one if the URL is empty.
func openRedis(url string) (*redisServer, error) {
	if url != "" {
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

func (r *redisServer) embedded() bool { return r.mini != nil }

func (r *redisServer) close() error {
	err := r.client.Close()
	if r.embedded() {
		r.mini.Close()
	}
	return err
}
