// The handler that everybody protects.

package main

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/gofiber/fiber/v3"
)

// bodySize is the length of the bodies of requests and responses in bytes, where nothing else is said.
const bodySize = 1024

// jsonOf returns a JSON text of n bytes: a number of as many digits.
func jsonOf(n int) []byte { return bytes.Repeat([]byte{'1'}, n) }

// service answers with a body and three headers, and counts its runs.
type service struct {
	body []byte
	runs atomic.Int64
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.runs.Add(1)
	s.write(w, http.StatusCreated, s.body)
}

func (*service) write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Location", "/payments/1")
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error is one of the client's, who finds it
}

func (s *service) fiber(c fiber.Ctx) error {
	s.runs.Add(1)
	c.Set("Content-Type", "application/json")
	c.Set("Cache-Control", "no-store")
	c.Set("Location", "/payments/1")
	return c.Status(http.StatusCreated).Send(s.body)
}
