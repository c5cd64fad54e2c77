// Package demo is the machinery behind the example's page: the same shop twice, once as it is and once behind
// middleware.Idempotency, and a stream of events that shows what becomes of each request. None of it is needed to use
// onceguard. How to use onceguard is in the example's own files: begin with server.go and payments.go there.
package demo

import (
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Demo serves the page and its two shops. Its methods may be called concurrently.
type Demo struct {
	ctx     context.Context
	options *redis.Options
	client  *redis.Client
	// embedded reports whether Redis belongs to this process, so that a visitor may delete keys.
	embedded  bool
	opTimeout time.Duration
	visitor   func(context.Context) string

	mu    sync.Mutex
	shops map[string]*shop // by visitor
}

// New returns a Demo. Its streams of events end when ctx is done. visitor returns the id of the request's visitor: each has
// shops of their own.
func New(ctx context.Context, options *redis.Options, embedded bool, opTimeout time.Duration, visitor func(context.Context) string) *Demo {
	client := redis.NewClient(options)
	return &Demo{ctx, options, client, embedded, opTimeout, visitor, sync.Mutex{}, map[string]*shop{}}
}

// Routes adds everything but the page and the stream of events to r.
func (d *Demo) Routes(r chi.Router) {
	shop := http.HandlerFunc(d.order)
	r.Method(http.MethodPost, "/demo/unprotected/orders", d.watch("unprotected", shop))
	r.Method(http.MethodPost, "/demo/protected/orders", d.watch("protected", d.protect(shop)))
	r.Post("/demo/start-over", func(w http.ResponseWriter, r *http.Request) {
		s := d.shop(r)
		s.change(func() { s.records = nil })
	})
	if d.embedded {
		r.Post("/demo/redis/empty", d.emptyRedis)
	}
	r.Handle("/page.css", http.FileServerFS(files))
	r.Handle("/page.js", http.FileServerFS(files))
}

// protect puts next behind Idempotency, on two instances. Each has a Locker and connections of its own, as it would in a
// process of its own. They share nothing but Redis. The header X-Instance chooses the instance, as a load balancer would, and
// "Prefer: wait=0" (RFC 7240 section 4.3) the one whose duplicates do not wait. Neither header changes what the request is:
// key and fingerprint do not contain them.
func (d *Demo) protect(next http.Handler) http.Handler {
	handlers := map[string]http.Handler{}
	for _, instance := range []string{"", "2"} {
		locker := lock.New(redis.NewClient(d.options), "chi-server-demo", lock.WithOpTimeout(d.opTimeout))
		// This is all that the protected shop has and the other has not.
		once := middleware.Options(middleware.WithRequired(), middleware.WithAtMostOnce())
		key := keyfunc.Standard(keyfunc.User(d.visitor))
		handlers[instance] = middleware.Idempotency(locker, key, once, middleware.WithWait(10*time.Second))(next)
		handlers[instance+"wait=0"] = middleware.Idempotency(locker, key, once)(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, ok := handlers[r.Header.Get("X-Instance")+r.Header.Get("Prefer")]
		if !ok {
			h = handlers[""]
		}
		h.ServeHTTP(w, r)
	})
}

// order charges a card, which takes a second, and places an order. It is the handler of both shops. It pays no heed to a
// client that has left: a charge that has been sent to a payment provider cannot be called back.
func (d *Demo) order(w http.ResponseWriter, r *http.Request) {
	rec := r.Context().Value(recordKey{}).(*record)
	s := rec.shop
	s.change(func() { rec.RunStart, rec.key = s.now(), middleware.FromContext(r.Context()).Key() })
	time.Sleep(time.Second) // the payment provider is busy
	s.change(func() { rec.RunEnd = s.now() })
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"quantity":%d,"cents":%d}`+"\n", rec.Quantity, rec.Quantity*4900)
}

// emptyRedis deletes the visitor's keys: to their requests, Redis is as empty as after a FLUSHALL or a restart without
// persistence. Those of others stay.
func (d *Demo) emptyRedis(w http.ResponseWriter, r *http.Request) {
	s := d.shop(r)
	s.change(func() {
		for _, rec := range s.records {
			if err := d.client.Del(r.Context(), rec.key).Err(); err != nil {
				http.Error(w, "Redis does not answer.", http.StatusServiceUnavailable)
				return
			}
		}
	})
}

// Form is what the page shows of the order form.
type Form struct {
	Key string
	// The orders: each has an ID, an Item and a Quantity.
	Placed any
}

//go:embed page.html page.css page.js
var files embed.FS

var page = template.Must(template.ParseFS(files, "page.html"))

// Page writes the page with an order form. It must not be cached: the form's key would be a used one.
func (d *Demo) Page(w http.ResponseWriter, r *http.Request, form Form) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:; frame-ancestors 'none'")
	_ = page.Execute(w, map[string]any{"Form": form, "Visitor": d.visitor(r.Context()), "Embedded": d.embedded})
}
