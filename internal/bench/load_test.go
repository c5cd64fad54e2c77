package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A site or lock that does not do what is measured must not come out fast.
func TestBrokenContendersFail(t *testing.T) {
	c := conditionsFor(redisFor(t), crowd)
	client := c.newClient()
	t.Cleanup(func() { _ = client.Close() })
	for _, test := range []struct {
		name  string
		setUp setUp
		want  string // in the error
	}{
		{"first requests that do not run", firsts(openMute), "the handler ran 0 times"},
		{"first requests of which nothing is kept", firsts(openHandler), "0 keys in Redis"},
		{"replays that run again", replays(openHandler), "the handler ran 80 times, want 0"},
		{"replays without a body", replays(openForgetful), "a body of 0 bytes"},
		{"duplicates in flight that run", inFlights(openHandler), "status 201, want [409]"},
		{"duplicates in flight, of nothing", inFlights(openMute), "answered before it ran"},
		{"crowds of which each runs", crowds(openHandler), "the handler ran 80 times, want "},
		{
			"a lock that takes nothing",
			lockWith(func(context.Context, string) error { return nil }), "counting set",
		},
		{
			"a lock that frees nothing",
			lockWith(func(ctx context.Context, key string) error {
				return client.Set(ctx, key, bareToken, lockTTL).Err()
			}),
			"80 keys in Redis, want 0",
		},
		{
			"a lock that takes one key for all",
			lockWith(func(ctx context.Context, _ string) error {
				return taken(client.SetNX(ctx, "one", bareToken, lockTTL).Result())
			}),
			errHeld.Error(),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := measure(t.Context(), subjectOf(t, test.setUp, c), c, limit{answers: 10 * crowd})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func lockWith(cycle func(ctx context.Context, key string) error) setUp {
	return locking(func(context.Context, conditions) (locker, error) { return locker{cycle, closeNothing}, nil })
}

// openMute opens a site that does not call the service.
func openMute(_ context.Context, c conditions, s *service) (*site, error) {
	visit := func(string) (int, []byte, error) { return http.StatusCreated, s.body, nil }
	return &site{newVisitor: func() visitor { return visit }, close: closeNothing}, nil
}

// openForgetful opens a site that replays the status only.
func openForgetful(_ context.Context, c conditions, s *service) (*site, error) {
	var done sync.Map
	visit := func(key string) (int, []byte, error) {
		if _, met := done.LoadOrStore(key, true); met {
			return http.StatusCreated, nil, nil
		}
		s.run()
		return http.StatusCreated, s.body, nil
	}
	return &site{newVisitor: func() visitor { return visit }, close: closeNothing}, nil
}

func TestKeys(t *testing.T) {
	met := map[string]bool{}
	for _, k := range []*keys{{}, {caller: 1}, {caller: 0xabcdef}, {next: 1 << 24}} {
		for range 200 {
			key := k.fresh()
			if len(key) != keyLength || met[key] {
				t.Fatalf("the key %q has a wrong length, or was there before", key)
			}
			met[key] = true
		}
	}
	if !met[keyText(0xabcdef, 127, 1)] {
		t.Error("the 128th key of caller 0xabcdef is missing")
	}
}

// The allocations of a measurement are not its own.
func TestRaceAllocatesLittle(t *testing.T) {
	w, err := newWeb(t.Context(), conditions{callers: 1, body: jsonOf(bodySize)}, openMute)
	if err != nil {
		t.Fatal(err)
	}
	caller := func(i int) func() error { return w.repeat(i, w.keys[i].fresh, http.StatusCreated) }
	r, err := race(caller, 1, limit{answers: 10_000})
	if err != nil || r.allocs > 5000 {
		t.Errorf("10000 calls allocate %d objects, error %v, want at most 5000", r.allocs, err)
	}
}

func TestJSONOf(t *testing.T) {
	for _, n := range []int{1, 100, bodySize} {
		if body := jsonOf(n); !json.Valid(body) || len(body) != n {
			t.Errorf("jsonOf(%d) = %.20q of %d bytes", n, body, len(body))
		}
	}
}
