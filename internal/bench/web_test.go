package main

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Who does not do what is measured must not come out fast.
func TestBrokenSitesFail(t *testing.T) {
	c := conditionsFor(t, redisFor(t).addr, crowd, false)
	for _, test := range []struct {
		name  string
		setUp func(context.Context, conditions) (subject, error)
		want  string // in the error
	}{
		{"first requests that do not run", firsts(openMute), "the handler ran 0 times"},
		{"first requests of which nothing is kept", firsts(openHandler), "0 keys in Redis"},
		{"replays that run again", replays(openHandler), "the handler ran 88 times, want 8"},
		{"replays without a body", replays(openForgetful), "a body of 0 bytes"},
		{"duplicates in flight that run", inFlights(openHandler), "status 201, want 409"},
		{"duplicates in flight, of nothing", inFlights(openMute), "answered before it ran"},
		{"crowds of which each runs", crowds(openHandler), "the handler ran 80 times, want "},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := setUp(t, contender{setUp: test.setUp}, c)
			_, err := measure(t.Context(), s, c, forCount(10*crowd))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// openMute opens a site that answers everything itself.
func openMute(_ context.Context, c conditions, s *service) (*site, error) {
	return newSite(c, s, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(s.body)
	}), func() error { return nil })
}

// openForgetful opens a site that replays the status only.
func openForgetful(_ context.Context, c conditions, s *service) (*site, error) {
	var done sync.Map
	return newSite(c, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, met := done.LoadOrStore(r.Header.Get("Idempotency-Key"), true); met {
			w.WriteHeader(http.StatusCreated)
			return
		}
		s.ServeHTTP(w, r)
	}), func() error { return nil })
}
