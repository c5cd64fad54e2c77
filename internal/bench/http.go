// The comparison over HTTP on loopback: the server has a core, and the callers share the other one with Redis.

package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// serveCommand is the command of the server's process. It is not for users.
const serveCommand = "serve"

// served serve the service to a listener, by the name of the site.
var served = map[string]func(conditions, *service, net.Listener) error{
	"handler": func(_ conditions, s *service, l net.Listener) error { return serveHTTP(l, s, s) },
	"onceguard": func(c conditions, s *service, l net.Listener) error {
		protect, _ := protection(c)
		return serveHTTP(l, s, protect(s))
	},
	"fiber-handler": func(_ conditions, s *service, l net.Listener) error { return serveFiber(l, s, s.fiber) },
	"fiber": func(c conditions, s *service, l net.Listener) error {
		return serveFiber(l, s, fiberProtection(c.newClient()), s.fiber)
	},
}

func serveHTTP(l net.Listener, s *service, h http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", h)
	mux.HandleFunc("GET /runs", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.runs.Swap(0)) })
	return http.Serve(l, mux)
}

func serveFiber(l net.Listener, s *service, handlers ...any) error {
	app := fiberApp(handlers...)
	app.Get("/runs", func(c fiber.Ctx) error { return c.SendString(strconv.FormatInt(s.runs.Swap(0), 10)) })
	return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
}

// serveConfig is what the flags set.
type serveConfig struct {
	site, redis string
	pool        int
}

func parseServe(s session) (cfg serveConfig, err error) {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	flags.StringVar(&cfg.site, "site", "", "the name of the site")
	flags.StringVar(&cfg.redis, "redis", "", "the address of Redis")
	flags.IntVar(&cfg.pool, "pool", 1, "how many connections to Redis there may be")
	if err = parseFlags(flags, s); err == nil && served[cfg.site] == nil {
		err = fmt.Errorf("there is no site %q", cfg.site)
	}
	return cfg, err
}

// serve prints the address on which it serves the site.
func serve(_ context.Context, s session, cfg serveConfig) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out, l.Addr())
	c := conditions{server: &server{addr: cfg.redis}, pool: cfg.pool}
	return served[cfg.site](c, &service{body: jsonOf(bodySize)}, l)
}

// openServed opens a site in a process of its own.
func openServed(name string) opener {
	return func(_ context.Context, c conditions, _ *service) (*site, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		p := newProcess(c.core, self, serveCommand, "-site", name, "-redis", c.server.addr, "-pool", strconv.Itoa(c.pool))
		p.Stderr = os.Stderr
		out, err := p.StdoutPipe()
		if err == nil {
			err = p.start()
		}
		if err != nil {
			return nil, err
		}
		addr, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			p.stop()
			return nil, fmt.Errorf("the server has not started: %w", err)
		}
		addr = strings.TrimSpace(addr)
		client := &fasthttp.HostClient{Addr: addr, MaxConns: c.callers}
		return &site{
			newVisitor: func() visitor { return newRemoteCall(client, c.body).visit },
			close:      func() error { p.stop(); return nil },
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

// httpSuite is that of the comparison over HTTP.
func httpSuite() suite {
	s := comparisonSuite()
	s.served = true
	s.contenders = []contender{
		{group: first, name: "handler", label: "net/http alone", setUp: unprotected(openServed("handler"))},
		{group: first, name: "fiber-handler", label: "fiber v3 alone", setUp: unprotected(openServed("fiber-handler"))},
		{group: first, name: "onceguard", label: "onceguard", setUp: firsts(openServed("onceguard"))},
		{group: first, name: "fiber", label: "fiber v3 idempotency", setUp: firsts(openServed("fiber"))},
		{group: replay, name: "onceguard", label: "onceguard", setUp: replays(openServed("onceguard"))},
		{group: replay, name: "fiber", label: "fiber v3 idempotency", setUp: replays(openServed("fiber"))},
	}
	s.comparisons = []comparison{
		{"first request / net/http alone", "first/onceguard first/handler"},
		{"replay / net/http alone", "replay/onceguard first/handler"},
		{"first request / fiber", "first/onceguard first/fiber"},
		{"replay / fiber", "replay/onceguard replay/fiber"},
	}
	return s
}

// measureHTTP measures the suite over HTTP, for 16 and 64 callers of those that cfg has.
func measureHTTP(ctx context.Context, s session, cfg compareConfig) ([]column, error) {
	cfg.callers = slices.DeleteFunc(slices.Clone(cfg.callers), func(n int) bool { return n != 16 && n != 64 })
	s.cores.first, s.cores.last = s.cores.last, s.cores.first // of the server, and of this process and Redis
	return measureColumns(ctx, s, cfg, httpSuite(), nil)
}

// writeHTTP writes what measureHTTP has measured.
func writeHTTP(s session, columns []column) error {
	fmt.Fprint(s.out, "\n## Over HTTP, a connection for each caller\n")
	if s.cores.first != "" {
		fmt.Fprintf(s.out, "\nThe server on core %s, bench and Redis on core %s.\n", s.cores.last, s.cores.first)
	}
	return httpSuite().writeTables(s.out, columns)
}
