package redistest_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// within returns the context of a command that should succeed.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// soon returns the context of a command that can only fail. It ends after 100 ms.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// ready returns a client whose connection is set up.
func ready(t *testing.T, p *redistest.Proxy) *redis.Client {
	t.Helper()
	client := p.Client(t, redistest.OneTry, func(o *redis.Options) { o.PoolSize = 1 })
	if err := client.Ping(within(t)).Err(); err != nil {
		t.Fatalf("PING: %v", err)
	}
	return client
}

// conn is a client that sends the bytes that a test gives it.
type conn struct {
	net.Conn
	in redistest.Splitter
}

func dial(t *testing.T, addr string) *conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &conn{Conn: c, in: redistest.NewSplitter(c)}
}

func (c *conn) send(t *testing.T, bytes string) {
	t.Helper()
	if _, err := c.Write([]byte(bytes)); err != nil {
		t.Fatalf("sending %q: %v", bytes, err)
	}
}

func (c *conn) read(t *testing.T) string {
	t.Helper()
	raw, err := c.in.Reply()
	if err != nil {
		t.Fatalf("reading a reply: %v", err)
	}
	return string(raw)
}

func command(line string) string { return array('*', strings.Fields(line)...) }

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
