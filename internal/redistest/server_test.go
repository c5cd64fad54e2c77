package redistest_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestServersAreApart(t *testing.T) {
	t.Parallel()
	one, two := redistest.Start(t), redistest.Start(t)
	if err := one.Client(t).Set(within(t), "key", "one", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := two.Keys(t); len(got) != 0 {
		t.Errorf("the other server has %q", got)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, redistest.OneTry)
	if err := client.Ping(within(t)).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		server.Pause(t)
		if err := client.Ping(soon(t)).Err(); !isTimeout(err) {
			t.Errorf("paused: got %v, want a timeout", err)
		}
		server.Resume(t)
		if err := client.Ping(within(t)).Err(); err != nil {
			t.Errorf("resumed: %v", err)
		}
	}
	server.Resume(t) // no effect: the server runs
}

// A clean-up that was registered before the pause runs with a server that answers.
func TestPauseEndsWithTheTest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, redistest.OneTry)
	t.Run("paused", func(t *testing.T) {
		t.Cleanup(func() {
			if err := client.Ping(within(t)).Err(); err != nil {
				t.Errorf("in a clean-up: %v", err)
			}
		})
		server.Pause(t)
	})
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string // the keys after the restart
	}{
		"empty":      {nil, "[]"},
		"persistent": {[]string{"--appendonly", "yes", "--appendfsync", "always"}, "[key]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, test.args...)
			client := server.Client(t, redistest.OneTry)
			if err := client.Set(within(t), "key", "value", 0).Err(); err != nil {
				t.Fatal(err)
			}
			addr := server.Addr()
			server.Kill(t)
			if c, err := net.Dial("tcp", addr); err == nil {
				c.Close()
				t.Error("killed: the port still accepts")
			}
			if err := client.Ping(within(t)).Err(); err == nil {
				t.Error("killed: the server still answers")
			}
			server.Kill(t) // no effect: the server is dead
			server.Restart(t)
			if got := fmt.Sprint(server.Keys(t)); got != test.want {
				t.Errorf("restarted: got %s, want %s", got, test.want)
			}
			if server.Addr() != addr {
				t.Errorf("restarted on %s, was on %s", server.Addr(), addr)
			}
			if err := client.Ping(within(t)).Err(); err != nil {
				t.Errorf("restarted: %v", err)
			}
		})
	}
}

func TestKillWhilePaused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Pause(t)
	server.Kill(t)
	server.Resume(t) // no effect: the server is dead
	server.Restart(t)
	if err := server.Client(t).Ping(within(t)).Err(); err != nil {
		t.Error(err)
	}
}

func TestRestartWhileItRuns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client(t).Set(within(t), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	server.Restart(t)
	if got := server.Keys(t); len(got) != 0 {
		t.Errorf("restarted with %q", got)
	}
}

func TestStartPassesArguments(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "3mb", "--appendonly", "yes")
	for option, want := range map[string]string{"maxmemory": "3145728", "appendonly": "yes", "save": ""} {
		got, err := server.Client(t).ConfigGet(within(t), option).Result()
		if err != nil || got[option] != want {
			t.Errorf("%s: got %q, %v; want %q", option, got[option], err, want)
		}
	}
}
