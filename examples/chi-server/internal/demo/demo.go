// Package demo is the machinery behind the example's page: the same shop twice, once as it is and once behind
// middleware.Idempotency, and a stream of events that shows what becomes of each request. None of it is needed to use
// onceguard. How to use onceguard is in the example's own files: begin with server.go and payments.go there.
package demo

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Config is what [New] needs. Work and Heartbeat have defaults; everything else is required.
type Config struct {
	Redis     *redis.Options                          // how to reach the server that both instances of the shop share
	Embedded  bool                                    // the server belongs to this process, so a visitor may delete keys
	OpTimeout time.Duration                           // for one operation on Redis
	Visitor   func(context.Context) string            // the id of the request's visitor, or "": each visitor has shops of their own
	Observe   func(context.Context, middleware.Event) // gets each Event that Demo.Observe gets, for the log

	Work      time.Duration // that it takes to charge a card; default 1 s
	Heartbeat time.Duration // between signs of life in a silent stream of events; default 15 s
}

// Demo serves the page and its two shops. Its methods may be called concurrently.
type Demo struct {
	cfg     Config
	clients []*redis.Client // one for each instance
	lockers []*lock.Locker  // one for each instance
	shops   registry

	closeOnce sync.Once
	closing   chan struct{} // closed when the streams must end
}

// instances is how many instances of the protected shop there are. Each has a Locker and connections of its own, as it
// would in a process of its own. They share nothing but Redis.
const instances = 2

// New returns a Demo. Close it.
func New(cfg Config) *Demo {
	if cfg.Work == 0 {
		cfg.Work = time.Second
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 15 * time.Second
	}
	d := &Demo{cfg: cfg, closing: make(chan struct{})}
	for range instances {
		options := *cfg.Redis
		client := redis.NewClient(&options)
		d.clients = append(d.clients, client)
		d.lockers = append(d.lockers, lock.New(client, "chi-server-demo", lock.WithOpTimeout(cfg.OpTimeout)))
	}
	return d
}

// Routes adds everything but the page and the stream of events to r.
func (d *Demo) Routes(r chi.Router) {
	order := d.Running(http.HandlerFunc(d.order))
	r.With(d.Watch(Unprotected)).Method(http.MethodPost, "/demo/unprotected/orders", order)
	r.With(d.Watch(Protected)).Method(http.MethodPost, "/demo/protected/orders", d.protect(order))
	r.Post("/demo/start-over", d.startOver)
	if d.cfg.Embedded {
		r.Post("/demo/redis/empty", d.emptyRedis)
	}
}

// CloseStreams ends the streams of events, and those that begin later. Register it with [http.Server.RegisterOnShutdown]:
// Shutdown waits for streams, and they do not end by themselves.
func (d *Demo) CloseStreams() { d.closeOnce.Do(func() { close(d.closing) }) }

// Close ends the background work and closes the connections to Redis. Call it when no request runs any more.
func (d *Demo) Close(ctx context.Context) error {
	d.CloseStreams()
	var errs []error
	for i := range d.lockers {
		errs = append(errs, d.lockers[i].Close(ctx), d.clients[i].Close())
	}
	return errors.Join(errs...)
}

// shop returns the shop of the request's visitor. If there is none, it answers, and returns nil.
func (d *Demo) shop(w http.ResponseWriter, r *http.Request) *shop {
	visitor := d.cfg.Visitor(r.Context())
	if visitor == "" {
		http.Error(w, "Open the page first: it gives you a shop, and a cookie to find it again.", http.StatusForbidden)
		return nil
	}
	s := d.shops.of(visitor)
	if s == nil {
		http.Error(w, "There are too many visitors. Please try again later.", http.StatusServiceUnavailable)
	}
	return s
}
