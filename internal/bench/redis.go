// The Redis servers that are measured, and what is checked in them.

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a redis-server process, empty at first and without persistence.
type server struct {
	addr    string
	client  *redis.Client // for checks, not for what is measured
	process *process
}

// startRedis returns a server that answers, pinned to the core unless that is empty.
func startRedis(ctx context.Context, core string) (s *server, err error) {
	for range 10 { // the port may be in use
		if s, err = launch(ctx, core); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("starting redis-server: %w", err)
}

func launch(ctx context.Context, core string) (*server, error) {
	// Ports for outgoing connections are above these.
	port := strconv.Itoa(10_000 + rand.IntN(10_000))
	s := &server{addr: "127.0.0.1:" + port}
	s.process = newProcess(core, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := s.process.start(); err != nil {
		return nil, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 1})
	pid := strconv.Itoa(s.process.Process.Pid)
	for range 2000 {
		// Another server may answer, if it has the port.
		if s.client.InfoMap(ctx, "server").Item("Server", "process_id") == pid {
			return s, nil
		}
		select {
		case <-s.process.ended:
			return nil, fmt.Errorf("it ended at once: %v", s.process.ProcessState)
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), s.stop())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil, errors.Join(errors.New("no answer"), s.stop())
}

// stop kills the process and returns when it is gone.
func (s *server) stop() error {
	s.process.stop()
	return s.client.Close()
}

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
