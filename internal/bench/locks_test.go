package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestBrokenLocksFail(t *testing.T) {
	c := conditionsFor(t, redisFor(t).addr, 4, false)
	client := c.newClient()
	t.Cleanup(func() { _ = client.Close() })
	for _, test := range []struct {
		name  string
		cycle func(ctx context.Context, key string) error
		want  string // in the error
	}{
		{"takes nothing", func(context.Context, string) error { return nil }, "counting set"},
		{
			"frees nothing",
			func(ctx context.Context, key string) error { return client.Set(ctx, key, bareToken, lockTTL).Err() },
			"40 keys in Redis, want 0",
		},
		{
			"takes one key for all",
			func(ctx context.Context, _ string) error {
				ok, err := client.SetNX(ctx, "one", bareToken, lockTTL).Result()
				if err == nil && !ok {
					return errHeld
				}
				return err
			},
			errHeld.Error(),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			open := func(context.Context, conditions) (locker, error) {
				return locker{test.cycle, func() error { return nil }}, nil
			}
			s := setUp(t, contender{setUp: locking(open)}, c)
			_, err := measure(t.Context(), s, c, forCount(40))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// What fails is named, and has no score.
func TestFailuresHaveNoScore(t *testing.T) {
	c := conditionsFor(t, redisFor(t).addr, 1, false)
	b := board{callers: 1, progress: t.Output(), conditions: c, cfg: config{time: 5 * time.Millisecond}}
	for name, open := range map[string]opener{"sound": openBare, "broken": openMute} {
		of := contender{group: first, name: name, setUp: firsts(open)}
		b.seats = append(b.seats, seat{of, setUp(t, of, c)})
	}
	round := scores{}
	for i := range b.seats {
		b.score(t.Context(), i, round)
	}
	if _, ok := round["first/broken"]; ok || len(round) > 1 {
		t.Errorf("scores %v, want those of first/sound alone", round)
	}
	if len(b.failures) != 1 || !strings.HasPrefix(b.failures[0], "first/broken, 1 caller: ") {
		t.Errorf("failures %q, want the one of first/broken", b.failures)
	}
}
