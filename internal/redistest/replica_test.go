package redistest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestStartMasters(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 5, "--maxmemory", "3mb")
	for i, s := range servers {
		if got := s.Keys(t); len(got) != 0 {
			t.Errorf("the next server has %q", got)
		}
		if err := s.Client(t).Set(within(t), fmt.Sprint("key", i), "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := s.Client(t).ConfigGet(within(t), "maxmemory").Result()
		if err != nil || got["maxmemory"] != "3145728" {
			t.Errorf("maxmemory: got %q, %v", got, err)
		}
	}
	if len(servers) != 5 {
		t.Errorf("got %d", len(servers))
	}
}

func TestStartReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	client := master.Client(t)
	set := func(key string) {
		t.Helper()
		if err := client.Set(within(t), key, "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, s *redistest.Server, want string) {
		t.Helper()
		if got := fmt.Sprint(s.Keys(t)); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	acked := func(want int64) {
		t.Helper()
		if got, err := client.Wait(within(t), 1, 50*time.Millisecond).Result(); got != want || err != nil {
			t.Errorf("WAIT: got %d, %v; want %d", got, err, want)
		}
	}
	set("before")
	replica := redistest.StartReplica(t, master, "--maxmemory", "3mb")
	check("at once", replica, "[before]")
	if err := replica.Client(t).Set(within(t), "key", "value", 0).Err(); !redis.IsReadOnlyError(err) {
		t.Errorf("got %v, want READONLY", err)
	}
	set("since")
	acked(1)
	check("replicated", replica, "[before since]")

	replica.Pause(t)
	set("unseen")
	acked(0)
	replica.Resume(t)
	master.WaitForReplicas(t, replica)
	check("resumed", replica, "[before since unseen]")

	replica.Kill(t)
	replica.Restart(t)
	master.WaitForReplicas(t, replica)
	check("restarted", replica, "[before since unseen]")

	master.Restart(t)
	master.WaitForReplicas(t, replica)
	check("after a restart of the master", replica, "[]")
}
