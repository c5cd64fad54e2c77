package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	chimiddleware "github.com/go-chi/chi/v5/middleware"
)

// maxRecords bounds what the page shows of a visitor: beyond, the shop starts over.
const maxRecords = 400

// record is what is known of one request. Its exported fields are guarded by shop.mu; times are milliseconds since the shop
// opened, and 0 if it has not come to that.
type record struct {
	shop *shop
	// As it stands in Redis; "" until a protected run begins.
	key string

	Lane, Key, Instance          string
	Quantity, Status             int
	Start, RunStart, RunEnd, End float64
	// The client had left before the response.
	Lost bool
}

type recordKey struct{}

// shop has what one visitor has done. It is safe for concurrent use.
type shop struct {
	opened time.Time

	mu      sync.Mutex
	records []*record
	changed chan struct{} // closed at the next change
}

// shop returns the shop of the request's visitor.
func (d *Demo) shop(r *http.Request) *shop {
	d.mu.Lock()
	defer d.mu.Unlock()
	visitor := d.visitor(r.Context())
	s := d.shops[visitor]
	if s == nil {
		s = &shop{opened: time.Now(), changed: make(chan struct{})}
		d.shops[visitor] = s
	}
	return s
}

func (s *shop) now() float64 { return float64(time.Since(s.opened).Microseconds()) / 1000 }

func (s *shop) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// watch records what becomes of each request. It is outside of Idempotency.
func (d *Demo) watch(lane string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, rec := d.shop(r), &record{Lane: lane, Key: r.Header.Get("Idempotency-Key"), Instance: r.Header.Get("X-Instance")}
		var order struct{ Quantity int }
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1000))
		if err != nil || json.Unmarshal(body, &order) != nil || order.Quantity < 1 || order.Quantity > 9 {
			http.Error(w, `The body must be JSON like {"quantity":1}, and the quantity 1 to 9.`, http.StatusBadRequest)
			return
		}
		s.change(func() {
			if len(s.records) == maxRecords {
				s.records = nil
			}
			rec.shop, rec.Quantity, rec.Start, s.records = s, order.Quantity, s.now(), append(s.records, rec)
		})
		r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
		r.Body = io.NopCloser(bytes.NewReader(body))
		ww := chimiddleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer s.change(func() { rec.End, rec.Status, rec.Lost = s.now(), ww.Status(), r.Context().Err() != nil })
		next.ServeHTTP(ww, r)
	})
}

// Events sends the visitor's requests, and sends them again at each change. The format is that of server-sent events (HTML
// Living Standard, section 9.2). It must be outside of middlewares that limit the time of a request.
func (d *Demo) Events(w http.ResponseWriter, r *http.Request) {
	s, out := d.shop(r), http.NewResponseController(w)
	// The stream outlives the server's timeouts.
	_, _ = out.SetReadDeadline(time.Time{}), out.SetWriteDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		s.mu.Lock()
		// Numbers and strings always marshal.
		data, _ := json.Marshal(map[string]any{"Now": s.now(), "Records": s.records})
		changed := s.changed
		s.mu.Unlock()
		if _, err := fmt.Fprintf(w, "event: shop\ndata: %s\n\n", data); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-d.ctx.Done():
			return
		}
	}
}
