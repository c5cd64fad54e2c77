// The Redis servers that are measured, and what is checked in them.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/child"
)

// server is a redis-server process, empty at first and without persistence.
type server struct {
	addr   string
	client *redis.Client // for checks, not for what is measured
	run    child.Server
}

// startRedis returns a server that answers, pinned to the core unless that is empty.
func startRedis(ctx context.Context, core string) (*server, error) {
	s := &server{run: child.Server{Name: "redis-server", OnCrash: syscall.SIGKILL, OnStop: syscall.SIGKILL}}
	s.run.Command = func() *exec.Cmd {
		return pinned(core, "redis-server", "--port", strconv.Itoa(s.run.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	}
	s.run.Ready = func(int) bool { return strings.Contains(s.run.Log(), "Ready to accept connections") }
	var err error
	if s.run.Dir, err = os.MkdirTemp("", "onceguard-bench-"); err == nil {
		err = s.run.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.run.Dir))
	}
	s.addr = s.run.Addr()
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 1})
	return s, nil
}

// stop kills the process and returns when it is gone.
func (s *server) stop() error { return errors.Join(s.run.Close(), s.client.Close()) }

// clear removes all keys, and sets the counts of commands to 0. Scripts stay.
func (s *server) clear(ctx context.Context) error {
	return errors.Join(s.client.FlushAll(ctx).Err(), s.client.ConfigResetStat(ctx).Err())
}

// wantKeys returns an error unless the server has so many keys.
func (s *server) wantKeys(ctx context.Context, want int) error {
	got, err := s.client.DBSize(ctx).Result()
	if err == nil && got != int64(want) {
		return fmt.Errorf("%d keys in Redis, want %d", got, want)
	}
	return err
}

// wantCalls returns an error if the command was called less often, by scripts or directly.
func (s *server) wantCalls(ctx context.Context, command string, want int) error {
	got := 0
	stats := s.client.InfoMap(ctx, "commandstats")
	if _, err := fmt.Sscanf(stats.Item("Commandstats", "cmdstat_"+command), "calls=%d", &got); err != nil {
		return fmt.Errorf("counting %s in Redis: %w", command, errors.Join(stats.Err(), err))
	}
	if got < want {
		return fmt.Errorf("%s was called %d times, want at least %d", command, got, want)
	}
	return nil
}
