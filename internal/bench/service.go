// The handler that everybody protects.

package main

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"
)

// bodySize is the length of the bodies of requests and responses in bytes, where nothing else is said.
const bodySize = 1024

// jsonOf returns a JSON text of n bytes: a number of as many digits.
func jsonOf(n int) []byte { return bytes.Repeat([]byte{'1'}, n) }

// service answers with a body and three headers, and counts its runs.
type service struct {
	body  []byte
	delay time.Duration // of each run
	runs  atomic.Int64

	// The first held runs send on entered, and wait until open is closed. They change between measurements alone.
	held          int64
	entered, open chan struct{}
}

func (s *service) run() {
	if n := s.runs.Add(1); n <= s.held {
		s.entered <- struct{}{}
		<-s.open
	}
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // from memory
	s.run()
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(s.body) // into memory
}

func (s *service) fiber(c fiber.Ctx) error {
	s.run()
	c.Set("Content-Type", "application/json")
	c.Set("Cache-Control", "no-store")
	c.Set("Location", "/payments/1")
	return c.Status(http.StatusCreated).Send(s.body)
}
