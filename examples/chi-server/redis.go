package main

import (
	"errors"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// database is the Redis that this process works with.
type database struct {
	client   *redis.Client
	name     string               // for the log: no credentials
	embedded *miniredis.Miniredis // nil for a real server
}

// openRedis returns a client of the server at the URL, which need not be up yet, or of an embedded one when the URL is
// empty.
func openRedis(url string) (*database, error) {
	if url == "" {
		return embeddedRedis()
	}
	options, err := redis.ParseURL(url)
	if err != nil { // which may repeat the password
		return nil, errors.New("the Redis URL is malformed: want redis://[user:password@]host:port[/database]")
	}
	options.ContextTimeoutEnabled = true // or the PING of /healthz would wait longer than it was told to
	return &database{client: redis.NewClient(options), name: options.Addr}, nil
}

// embeddedRedis starts a miniredis in this process.
func embeddedRedis() (*database, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	// miniredis leaves the moving of its clock to tests, and expires nothing by itself. Here an abandoned key has to come
	// free, and a stored response to go away, when real time has passed.
	m.ClockTTL(true)
	return &database{
		client:   redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true}),
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
