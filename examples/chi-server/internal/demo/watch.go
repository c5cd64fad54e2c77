package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/onceguard/onceguard/middleware"
)

// maxBody is the most that a watched request may send, in bytes.
const maxBody = 4 << 10

// Watch returns a middleware that publishes what becomes of each request. It must be outside of Idempotency, and
// [Demo.Observe] must be an observer of that.
func (d *Demo) Watch(lane Lane) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shop := d.shop(w, r)
			if shop == nil {
				return
			}
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
			if err != nil {
				refuseBody(w, err)
				return
			}
			rec := shop.begin(lane, keyOf(r, body), quantityIn(r, body), instanceOf(r))
			if rec == nil {
				http.Error(w, "You have ordered enough. Start over.", http.StatusTooManyRequests)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
			r.Body = io.NopCloser(bytes.NewReader(body))
			ww := chimiddleware.NewWrapResponseWriter(w, r.ProtoMajor)
			defer func() { shop.end(rec, ww.Status(), r.Context().Err() != nil) }()
			next.ServeHTTP(ww, r)
		})
	}
}

// Observe publishes what Idempotency says about a watched request, after Config.Observe has seen it. It is for
// middleware.WithObserver.
func (d *Demo) Observe(ctx context.Context, e middleware.Event) {
	d.cfg.Observe(ctx, e)
	if rec := recordOf(ctx); rec != nil {
		rec.shop.observed(rec, e)
	}
}

// Running returns a middleware that goes inside of Idempotency, where only those requests arrive that run.
func (d *Demo) Running(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rec := recordOf(r.Context()); rec != nil {
			rec.shop.running(rec, middleware.FromContext(r.Context()).Key())
			defer func(start time.Time) { rec.shop.ran(rec, time.Since(start)) }(time.Now())
		}
		next.ServeHTTP(w, r)
	})
}

type recordKey struct{}

// recordOf returns the record of a watched request, or nil.
func recordOf(ctx context.Context) *record {
	rec, _ := ctx.Value(recordKey{}).(*record)
	return rec
}

func refuseBody(w http.ResponseWriter, err error) {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		http.Error(w, "That is too much.", http.StatusRequestEntityTooLarge)
		return
	}
	http.Error(w, "The body ended early.", http.StatusBadRequest)
}

// keyOf returns what tells one wish of a visitor from another: the hash of the key, in the header or the form.
func keyOf(r *http.Request, body []byte) [sha256.Size]byte {
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		return sha256.Sum256([]byte(key))
	}
	form, _ := url.ParseQuery(string(body)) // what is malformed has no key
	return sha256.Sum256([]byte(form.Get("idempotency_key")))
}

// quantityIn returns the quantity in the body, or 0 if there is none. It is only shown.
func quantityIn(r *http.Request, body []byte) int {
	if r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" {
		form, _ := url.ParseQuery(string(body))
		n, _ := strconv.Atoi(form.Get("quantity"))
		return n
	}
	var order struct {
		Quantity int `json:"quantity"`
	}
	_ = json.Unmarshal(body, &order) // the handler says what is wrong with it
	return order.Quantity
}
