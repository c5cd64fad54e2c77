package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/gofiber/fiber/v3/middleware/idempotency"
)

// A site is a contender's two instances, each a process, and a redis-server of their own.
type site struct {
	contender contender
	effects   string // the file in which the handler counts
	addrs     [2]string
	redisAddr string
	redis     *exec.Cmd
	control   net.Listener

	mu        sync.Mutex // held during a restart
	instances []*exec.Cmd
}

// startSite starts a site whose handler counts its effects in the file.
func startSite(c contender, effects string) (*site, error) {
	s := &site{contender: c, effects: effects}
	ports, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	s.addrs, s.redisAddr = [2]string{ports[0], ports[1]}, ports[2]
	if err := os.WriteFile(effects, nil, 0o600); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.redisAddr)
	s.redis = exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := s.redis.Start(); err != nil {
		return nil, err
	}
	if s.control, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go func() {
		_ = http.Serve(s.control, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := s.restart(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}))
	}()
	return s, errors.Join(await(s.redisAddr), s.restart())
}

// freeAddresses returns loopback addresses on which nobody listens now.
func freeAddresses(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// await waits until somebody listens there.
func await(addr string) error {
	var err error
	for range 500 {
		var c net.Conn
		if c, err = net.Dial("tcp", addr); err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// restart kills the instances and starts them.
func (s *site) restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, addr := range s.addrs {
		instance := exec.Command(self, "serve", s.contender.name, addr, s.redisAddr, s.effects)
		if err := instance.Start(); err != nil {
			return err
		}
		s.instances = append(s.instances, instance)
	}
	return errors.Join(await(s.addrs[0]), await(s.addrs[1]))
}

// kill kills the instances. The caller holds s.mu.
func (s *site) kill() {
	for _, instance := range s.instances {
		_ = instance.Process.Kill()
		_ = instance.Wait() // it was killed
	}
	s.instances = nil
}

func (s *site) stop() {
	_ = s.control.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	_ = s.redis.Process.Kill()
	_ = s.redis.Wait() // it was killed
}

// questions are the arguments of oncecheck. The store is down while Redis is stopped by a signal.
func (s *site) questions() []string {
	url := func(i int, path string) string { return "http://" + s.addrs[i] + path }
	args := []string{
		"-H", "Authorization: Bearer ann", "-H2", "Authorization: Bearer bob", "-d", `{"amount":{{n}}}`,
		"-effects", fmt.Sprintf("wc -c < %s", s.effects),
		"-also", url(1, "/payments"), "-other-url", url(0, "/refunds"), "-slow", "slow=1s", "-slow", "late=1s",
		"-fail", "fail=before", "-fail", "fail=after",
		"-sample", "as=binary", "-sample", "as=large", "-sample", "as=empty", "-sample", "as=redirect",
		"-restart", "curl -fsS http://" + s.control.Addr().String(), "-timeout", "10s", "-patience", "20s",
	}
	if s.contender.name == "fiber-default" {
		args = append(args, "-key-header", idempotency.ConfigDefault.KeyHeader)
	}
	if s.contender.redis {
		pid := s.redis.Process.Pid
		args = append(args, "-store-down", fmt.Sprintf("kill -STOP %d", pid), "-store-up", fmt.Sprintf("kill -CONT %d", pid))
	}
	return append(args, url(0, "/payments"))
}
