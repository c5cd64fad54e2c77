package main

import (
	"errors"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// database is the Redis server of this process.
type database struct {
	client   *redis.Client
	options  *redis.Options
	name     string               // for the log, without credentials
	embedded *miniredis.Miniredis // nil for a real server
}

// openRedis returns a client of the server at the URL, which may be down, or of an embedded one if the URL is empty.
func openRedis(url string) (*database, error) {
	if url == "" {
		return embeddedRedis()
	}
	options, err := redis.ParseURL(url)
	if err != nil { // whose text may contain the password
		return nil, errors.New("the Redis URL is malformed: want redis://[user:password@]host:port[/database]")
	}
	options.ContextTimeoutEnabled = true // otherwise the PING of /healthz could take longer than its context
	return &database{client: redis.NewClient(options), options: options, name: options.Addr}, nil
}

// embeddedRedis starts a miniredis in this process.
func embeddedRedis() (*database, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	// By default miniredis expires keys only when a test moves its clock. Here leases and stored responses must expire
	// in real time.
	m.ClockTTL(true)
	options := &redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true}
	return &database{
		client:   redis.NewClient(options),
		options:  options,
		name:     "embedded miniredis, forgotten at exit",
		embedded: m,
	}, nil
}

func (d *database) close() error {
	err := d.client.Close()
	if d.embedded != nil {
		d.embedded.Close()
	}
	return err
}
