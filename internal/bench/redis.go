package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a redis-server process of this machine, empty and without persistence.
type server struct {
	addr    string
	version string
	process *exec.Cmd
	ended   chan struct{}
}

// startRedis returns a server that answers. The error is [exec.ErrNotFound] when redis-server is not on the PATH.
func startRedis(ctx context.Context) (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	for range 10 {
		var s *server
		if s, err = launch(ctx, path); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("starting redis-server: %w", err)
}

// launch starts a process on a port that may be taken: then it ends, and somebody else may answer there.
func launch(ctx context.Context, path string) (*server, error) {
	// Below 32768, from where the kernel takes ports for outgoing connections.
	port := strconv.Itoa(10000 + rand.IntN(10000))
	s := &server{addr: net.JoinHostPort("127.0.0.1", port), ended: make(chan struct{})}
	s.process = exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	s.process.SysProcAttr = dieWithParent()
	if err := s.begin(); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		info := client.InfoMap(ctx, "server").Item("Server", "process_id")
		if info == strconv.Itoa(s.process.Process.Pid) {
			s.version = client.InfoMap(ctx, "server").Item("Server", "redis_version")
			return s, nil
		}
		select {
		case <-s.ended:
			return nil, fmt.Errorf("it ended at once: %v", s.process.ProcessState)
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			s.stop()
			return nil, context.Cause(ctx)
		}
	}
	s.stop()
	return nil, errors.New("no answer")
}

// begin starts the process. It holds on to the thread that did so: to the kernel, that one is the parent with which
// the process dies.
func (s *server) begin() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.process.Start()
		started <- err
		if err == nil {
			_ = s.process.Wait() // it is killed
			close(s.ended)
		}
	}()
	return <-started
}

func (s *server) pid() int { return s.process.Process.Pid }

// stop returns when the process is gone.
func (s *server) stop() {
	_ = s.process.Process.Kill() // an error means that it has ended by itself
	<-s.ended
}

// store looks at what a contender has left in Redis.
type store struct{ client *redis.Client }

func newStore(addr string) store {
	return store{redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})}
}

// clear removes all keys, and sets the counts of commands to 0. Scripts stay.
func (s store) clear(ctx context.Context) error {
	return errors.Join(s.client.FlushAll(ctx).Err(), s.client.ConfigResetStat(ctx).Err())
}

// wantKeys is an error if there are not as many keys.
func (s store) wantKeys(ctx context.Context, want int) error {
	got, err := s.client.DBSize(ctx).Result()
	if err == nil && got != int64(want) {
		return fmt.Errorf("%d keys in Redis, want %d", got, want)
	}
	return err
}

// wantCalls is an error if the command was called less often, by scripts or directly.
func (s store) wantCalls(ctx context.Context, command string, want int) error {
	stats := s.client.InfoMap(ctx, "commandstats")
	text, _, _ := strings.Cut(strings.TrimPrefix(stats.Item("Commandstats", "cmdstat_"+command), "calls="), ",")
	got, err := strconv.Atoi(text)
	if stats.Err() != nil || err != nil {
		return fmt.Errorf("counting %s in Redis: %w", command, errors.Join(stats.Err(), err))
	}
	if got < want {
		return fmt.Errorf("%s was called %d times, want at least %d", command, got, want)
	}
	return nil
}
