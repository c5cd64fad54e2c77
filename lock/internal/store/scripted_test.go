package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

const (
	ttl       = 9 * time.Second
	opTimeout = time.Second
	hold      = time.Hour
)

// scripted is a Redis that gives the answers of a test, one to each command, and writes down the commands.
type scripted struct {
	scripts map[string]string // names, by digest

	mu      sync.Mutex
	answers []string // guarded by mu, as all below
	rest    string   // to the commands that have no answer of their own
	sent    [][]string
	at      []time.Time
}

// cut is the answer of a connection that breaks once the command has arrived.
const cut = "cut"

// after returns an answer that comes after d.
func after(d time.Duration, answer string) string { return d.String() + " " + answer }

// late returns an answer that comes after the operation has timed out.
func late(answer string) string { return after(2*opTimeout, answer) }

// The answers of RESP.
const (
	absent = "$-1\r\n"
	one    = ":1\r\n"
	none   = ":0\r\n"
)

func text(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// pair is what claim.lua returns: what the key holds, and for how long.
func pair(s string, left time.Duration) string {
	return fmt.Sprintf("*2\r\n%s:%d\r\n", text(s), left.Milliseconds())
}

// granted is what claim.lua returns with the fence of a claim that it has written.
func granted(fence string) string { return "*2\r\n$-1\r\n" + text(fence) }

// connection is one of a scripted server.
type connection struct {
	net.Conn // nil
	server   *scripted
	mu       sync.Mutex
	unread   []string // answers, guarded by mu
}

// Write takes whole commands.
func (c *connection) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := p; len(rest) > 0; {
		var args []string
		args, rest = cutCommand(rest)
		c.unread = append(c.unread, c.server.answer(args))
	}
	return len(p), nil
}

// cutCommand takes a command off the front of p.
func cutCommand(p []byte) (args []string, rest []byte) {
	number := func() int {
		line, after, _ := bytes.Cut(p, []byte("\r\n"))
		p = after
		n, _ := strconv.Atoi(string(line[1:]))
		return n
	}
	for range number() {
		n := number()
		args, p = append(args, string(p[:n])), p[n+2:]
	}
	return args, p
}

// answer writes the command down, with the name of its script, and returns its answer.
func (s *scripted) answer(args []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.scripts[args[min(1, len(args)-1)]]; name != "" {
		args = append([]string{name}, args[2:]...)
	}
	if args[0] == "command" { // a ClusterClient asks what there is, and where in it the key stands
		return "*1\r\n*6\r\n$7\r\nevalsha\r\n:-3\r\n*0\r\n:0\r\n:0\r\n:0\r\n"
	}
	s.sent, s.at = append(s.sent, args), append(s.at, time.Now())
	if len(s.answers) == 0 {
		return s.rest
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a
}

func (c *connection) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unread) == 0 {
		return 0, io.EOF
	}
	if pause, answer, isSlow := strings.Cut(c.unread[0], " "); isSlow {
		if d, err := time.ParseDuration(pause); err == nil {
			c.unread[0] = answer
			c.mu.Unlock()
			time.Sleep(d)
			c.mu.Lock()
		}
	}
	if c.unread[0] == cut {
		c.unread = nil
		return 0, io.EOF
	}
	n := copy(p, c.unread[0])
	if c.unread[0] = c.unread[0][n:]; c.unread[0] == "" {
		c.unread = c.unread[1:]
	}
	return n, nil
}

func (*connection) Close() error                     { return nil }
func (*connection) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*connection) SetDeadline(time.Time) error      { return nil }
func (*connection) SetReadDeadline(time.Time) error  { return nil }
func (*connection) SetWriteDeadline(time.Time) error { return nil }

// world is a Store on a scripted server, in a bubble.
type world struct {
	*testing.T
	*store.Store
	server *scripted
	key    store.Key
	token  uuid.UUID
	group  *background.Group
	begin  time.Time
}

// run runs test in a bubble. Without an answer, the server says that the key is absent.
func run(t *testing.T, answers []string, test func(w *world), opts ...func(*store.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: &scripted{answers: answers, rest: absent, scripts: scripts(t)}, begin: time.Now()}
		client := redistest.NewDirect(t, &redis.Options{
			Dialer: func(context.Context, string, string) (net.Conn, error) { return &connection{server: w.server}, nil },
		}).Client
		config := store.Config{Namespace: "ns", TTL: ttl, Config: pipeline.Config{OpTimeout: opTimeout, ReplicaTimeout: time.Second}}
		for _, opt := range opts {
			if opt != nil {
				opt(&config)
			}
		}
		w.group = background.NewGroup(context.Background())
		w.Store = store.New(client, w.group, config)
		w.key, w.token = config.Namespace.Key("key"), ours
		test(w)
		w.close()
		time.Sleep(time.Minute) // for workers that wait for an answer
	})
}

// in returns a subtest that runs beside others, as run does.
func in(answers []string, test func(w *world), opts ...func(*store.Config)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		run(t, answers, test, opts...)
	}
}

// close closes the Store, as a Locker does.
func (w *world) close() {
	w.Helper()
	if err := w.group.Close(context.Background()); err != nil {
		w.Error(err)
	}
}

func withFencing(c *store.Config)  { c.Fencing = true }
func withReplicas(c *store.Config) { c.Replicas = 1 }

// scripts returns the names of the scripts, by digest.
func scripts(t *testing.T) map[string]string {
	names := map[string]string{}
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names[redis.NewScript(string(source)).Hash()] = strings.TrimSuffix(filepath.Base(file), ".lua")
	}
	return names
}

// fenceKey is the fence counter of the key.
var fenceKey = func() string {
	name, _, _ := strings.Cut(store.Namespace("ns").Key("key").Text, "}")
	return name + "}fence"
}()

// sentFirst compares the first command, without its key, with want.
func (w *world) sentFirst(want ...string) {
	w.Helper()
	w.sentNth(0, want...)
}

// sentNth compares the command after n others, without its key, with want.
func (w *world) sentNth(n int, want ...string) {
	w.Helper()
	synctest.Wait()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	got := slices.DeleteFunc(slices.Clone(w.server.sent[n]), func(arg string) bool { return arg == w.key.Text })
	if len(got)+1 != len(w.server.sent[n]) || !slices.Equal(got, want) {
		w.Errorf("sent:\ngot  %q\nwant %q", w.server.sent[n], want)
	}
}

// sentOnly is sentFirst, and compares the number of commands with 1.
func (w *world) sentOnly(want ...string) {
	w.Helper()
	w.sentFirst(want...)
	if n := len(w.server.sent); n != 1 {
		w.Errorf("%d commands were sent", n)
	}
}

// errAny is an error that wantErr does not look at.
var errAny = errors.New("any error")

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if (got == nil) != (want == nil) || want != errAny && !errors.Is(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// sent compares the names of the commands that were sent so far with want.
func (w *world) sent(want string) {
	w.Helper()
	synctest.Wait()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	var names []string
	for _, args := range w.server.sent {
		names = append(names, args[0])
	}
	if got := strings.Join(names, " "); got != want {
		w.Errorf("sent:\ngot  %s\nwant %s", got, want)
	}
}
