package main

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
)

// service is the handler that everybody protects: it answers with a body as long as the request's and three headers.
type service struct {
	body  []byte
	delay time.Duration
	runs  atomic.Int64
	gate  atomic.Pointer[gate]
}

// gate keeps the first runs waiting. Later ones, which should not be, pass.
type gate struct {
	room    int64
	entered chan struct{} // gets one for each that waits
	open    chan struct{}
}

// jsonOf returns a JSON text of n bytes, or one of two if n is less.
func jsonOf(n int) []byte {
	const empty = `{"note":""}`
	if n < len(empty) {
		return []byte(`{}`)
	}
	return []byte(`{"note":"` + strings.Repeat("x", n-len(empty)) + `"}`)
}

func (s *service) run() {
	n := s.runs.Add(1)
	if g := s.gate.Load(); g != nil && n <= g.room {
		g.entered <- struct{}{}
		<-g.open
	}
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.run()
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(s.body) // a caller that is gone counts as a failure where it was
}

func (s *service) fiber(c *fiber.Ctx) error {
	s.run()
	c.Set("Content-Type", "application/json")
	c.Set("Cache-Control", "no-store")
	c.Set("Location", "/payments/1")
	return c.Status(http.StatusCreated).Send(s.body)
}
