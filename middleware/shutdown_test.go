package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// http.Server.Shutdown waits for running handlers, and for their responses to be stored. Close ends the rest.
func TestShutdown(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t))
		g := newGate()
		s := serveOn(t, locker, func(w http.ResponseWriter, r *http.Request) {
			g.pass()
			payOnce()(w, r)
		})
		server := httptest.NewServer(middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.runs.Add(1)
				g.pass()
				payOnce()(w, r)
			})))
		defer server.Close()
		proper := s.url
		s.url = server.URL
		done := s.inBackground(g)

		settle := p.HoldReply(settles)
		shut := make(chan error, 1)
		stopping := make(chan struct{})
		server.Config.RegisterOnShutdown(func() { close(stopping) })
		go func() { shut <- server.Config.Shutdown(context.WithoutCancel(t.Context())) }()
		<-stopping
		close(g.open)
		settle.Wait(t)
		select {
		case err := <-shut:
			t.Errorf("Shutdown returned (%v) before the response was stored", err)
		default:
		}
		settle.Lift()
		if a := <-done; a.status != http.StatusCreated {
			t.Errorf("the request that was running got %d, want 201", a.status)
		}
		if err := <-shut; err != nil {
			t.Errorf("Shutdown: %v", err)
		}

		s.url = proper // another instance
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.wantRuns(1)
	})
}
