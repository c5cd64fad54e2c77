package redistest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestElapse(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		client := b.Client(t)
		for key, ttl := range map[string]time.Duration{
			"forever": 0,
			"hour":    time.Hour,
			"minute":  time.Minute,
			"second":  time.Second,
		} {
			if err := client.Set(within(t), key, "value", ttl).Err(); err != nil {
				t.Fatal(err)
			}
		}
		b.Elapse(t, time.Minute)
		if got, want := fmt.Sprint(b.Keys(t)), "[forever hour]"; got != want {
			t.Errorf("a minute later: got %s, want %s", got, want)
		}
		left, err := client.PTTL(within(t), "hour").Result()
		if err != nil || left > 59*time.Minute || left < 58*time.Minute {
			t.Errorf("of an hour is left: %v, %v; want a minute less", left, err)
		}
		if left, err := client.PTTL(within(t), "forever").Result(); err != nil || left != -1 {
			t.Errorf("of forever is left: %v, %v; want -1", left, err)
		}
		b.Elapse(t, 24*time.Hour)
		if got, want := fmt.Sprint(b.Keys(t)), "[forever]"; got != want {
			t.Errorf("a day later: got %s, want %s", got, want)
		}
	})
}

func TestKeyspace(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		if got := b.Keys(t); len(got) != 0 {
			t.Errorf("a new one has %q", got)
		}
		if got, ok := b.Raw(t, "key"); ok {
			t.Errorf("a new one has %q under key", got)
		}
		client := b.Client(t, func(o *redis.Options) { o.Protocol = 2 })
		if err := client.MSet(within(t), "key", "\x00value", "empty", "").Err(); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(b.Keys(t)), "[empty key]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, ok := b.Raw(t, "key"); got != "\x00value" || !ok {
			t.Errorf("got %q, %t", got, ok)
		}
		if got, ok := b.Raw(t, "empty"); got != "" || !ok {
			t.Errorf("got %q, %t", got, ok)
		}
		b.FlushAll(t)
		if got := b.Keys(t); len(got) != 0 {
			t.Errorf("flushed, and it has %q", got)
		}
	})
}
