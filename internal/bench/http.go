// The comparison over HTTP on loopback: the server has a core, and the callers share the other one with Redis.

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/onceguard/onceguard/internal/child"
)

const (
	httpCommand  = "http"
	serveCommand = "serve" // of the server's process; not for users
)

// served serve the service to a listener, by the name of the site.
var served = map[string]func(conditions, *service, net.Listener) error{
	"onceguard": func(c conditions, s *service, l net.Listener) error {
		protect, _ := protection(c)
		return serveHTTP(l, s, protect(s))
	},
	"raw": func(c conditions, s *service, l net.Listener) error {
		client := c.newClient()
		if err := bareSettle.Load(context.Background(), client).Err(); err != nil {
			return err
		}
		return serveHTTP(l, s, bareHandler(client, s))
	},
	"fiber": func(c conditions, s *service, l net.Listener) error {
		return serveFiber(l, s, fiberProtection(c.newClient()), s.fiber)
	},
}

// serveHTTP prints the address once the site is ready: before, Redis may be emptied under its Check.
func serveHTTP(l net.Listener, s *service, h http.Handler) error {
	fmt.Println(l.Addr())
	mux := http.NewServeMux()
	mux.Handle("POST /payments", h)
	mux.HandleFunc("GET /runs", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.runs.Swap(0)) })
	return http.Serve(l, mux)
}

func serveFiber(l net.Listener, s *service, handlers ...any) error {
	fmt.Println(l.Addr())
	app := fiberApp(handlers...)
	app.Get("/runs", func(c fiber.Ctx) error { return c.SendString(strconv.FormatInt(s.runs.Swap(0), 10)) })
	return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
}

// serve serves a site on an address that it prints. The arguments are its name, the address of Redis, and how many connections
// to Redis there may be.
func serve(_ context.Context, s session) error {
	if len(s.args) != 3 || served[s.args[0]] == nil {
		return fmt.Errorf("there is no site %q", s.args)
	}
	pool, err := strconv.Atoi(s.args[2])
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := conditions{server: &server{addr: s.args[1]}, pool: pool}
	return served[s.args[0]](c, &service{body: jsonOf(bodySize)}, l)
}

// openServed opens a site in a process of its own.
func openServed(name string) opener {
	return func(ctx context.Context, c conditions, s *service) (*site, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return openServedBy(self, name)(ctx, c, s)
	}
}

// openServedBy opens a site in a process of that build of this program.
func openServedBy(program, name string) opener {
	return func(_ context.Context, c conditions, _ *service) (*site, error) {
		cmd := pinned(c.core, program, serveCommand, name, c.server.addr, strconv.Itoa(c.pool))
		cmd.Stderr = os.Stderr
		out, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		cmd.Stdout = w
		p, err := child.Start(cmd, nil, syscall.SIGKILL)
		_ = w.Close()
		if err != nil {
			return nil, err
		}
		addr, err := bufio.NewReader(out).ReadString('\n')
		_ = out.Close()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the server has not started: %w", err), p.End(syscall.SIGKILL))
		}
		addr = strings.TrimSpace(addr)
		client := &fasthttp.HostClient{Addr: addr, MaxConns: c.callers}
		return &site{
			newVisitor: func() visitor { return newRemoteCall(client, c.body).visit },
			close:      func() error { return p.End(syscall.SIGKILL) },
			runs:       func() (int64, error) { return readRuns("http://" + addr + "/runs") },
		}, nil
	}
}

func readRuns(url string) (int64, error) {
	r, err := http.Get(url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

// remoteCall calls a server.
type remoteCall struct {
	client   *fasthttp.HostClient
	uri      string
	body     []byte
	request  fasthttp.Request
	response fasthttp.Response
}

func newRemoteCall(client *fasthttp.HostClient, body []byte) *remoteCall {
	return &remoteCall{client: client, uri: "http://" + client.Addr + "/payments", body: body}
}

// visit is a [visitor].
func (c *remoteCall) visit(key string) (int, []byte, error) {
	fillRequest(&c.request, c.uri, key, c.body)
	err := c.client.Do(&c.request, &c.response)
	return c.response.StatusCode(), c.response.Body(), err
}

// compareHTTP measures over HTTP, and writes the tables.
func compareHTTP(ctx context.Context, s session) error {
	defaults := compareConfig{rounds: 15, time: 400 * time.Millisecond, callers: []int{8, 16, 64, 256}}
	cfg, err := parseRounds(s, httpCommand, defaults)
	if err != nil {
		return err
	}
	s.cores.first, s.cores.last = s.cores.last, s.cores.first // of the server, and of this process and Redis
	return compareSuite(ctx, s, cfg, httpSuite(cfg.beside))
}

// httpSuite is that of the comparison over HTTP, also with another build of this program unless beside is empty.
func httpSuite(beside string) suite {
	s := suite{
		contenders: []contender{
			{group: first, name: "raw", label: "raw: the two bare commands in the handler", setUp: firsts(openServed("raw"))},
			{group: first, name: "onceguard", label: "onceguard", setUp: firsts(openServed("onceguard"))},
			{group: first, name: "fiber", label: "fiber v3 idempotency", setUp: firsts(openServed("fiber"))},
			{group: replay, name: "raw", label: "raw: the bare command in the handler", setUp: replays(openServed("raw"))},
			{group: replay, name: "onceguard", label: "onceguard", setUp: replays(openServed("onceguard"))},
			{group: replay, name: "fiber", label: "fiber v3 idempotency", setUp: replays(openServed("fiber"))},
		},
		groups: groups[:2],
		comparisons: []comparison{
			{"first request / raw", "first/onceguard first/raw"},
			{"replay / raw", "replay/onceguard replay/raw"},
			{"first request / fiber", "first/onceguard first/fiber"},
			{"replay / fiber", "replay/onceguard replay/fiber"},
		},
		rate:   thousands,
		warmUp: 200 * time.Millisecond,
	}
	if beside != "" {
		s.contenders = append(s.contenders,
			contender{group: first, name: "beside", label: beside, setUp: firsts(openServedBy(beside, "onceguard"))},
			contender{group: replay, name: "beside", label: beside, setUp: replays(openServedBy(beside, "onceguard"))})
		s.comparisons = append(s.comparisons,
			comparison{"first request / " + beside, "first/onceguard first/beside"},
			comparison{"replay / " + beside, "replay/onceguard replay/beside"})
	}
	return s
}
