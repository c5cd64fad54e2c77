package lock_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// canned is a connection to a server that is not there: what it would say is known before. It neither waits nor
// allocates, so that what is measured on it is the client's part.
type canned struct {
	holds  string // what every key holds; none if empty
	begun  []byte // of a command
	unread bytes.Buffer
}

func cannedOptions(holds string) *redis.Options {
	return &redis.Options{
		Addr:     "127.0.0.1:6379", // never dialled; a name would be looked up
		Protocol: 2, DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return &canned{holds: holds}, nil },
	}
}

func cannedLocker(tb testing.TB, holds string, opts ...func(*redis.Options)) *lock.Locker {
	o := cannedOptions(holds)
	for _, opt := range opts {
		opt(o)
	}
	client := redis.NewClient(o)
	locker := lock.New(client, "bench")
	tb.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			tb.Error(err)
		}
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return locker
}

// Write answers whole commands, and keeps the beginning of one: a client whose buffer is full writes what it has.
func (c *canned) Write(p []byte) (int, error) {
	rest := p
	if len(c.begun) > 0 {
		rest = append(c.begun, p...)
	}
	for len(rest) > 0 {
		var args [10][]byte
		next, whole := cutCommand(&args, rest)
		if !whole {
			break
		}
		rest = next
		switch {
		case string(args[0]) == "set" && c.holds != "":
			fmt.Fprintf(&c.unread, "$%d\r\n%s\r\n", len(c.holds), c.holds)
		case string(args[0]) == "set":
			c.unread.WriteString("$-1\r\n")
		case string(args[0]) == "evalsha": // what the scripts say whose claim stands
			c.unread.WriteString("$20\r\n")
			c.unread.Write(args[4])
			c.unread.WriteString("\r\n")
		case string(args[0]) == "hello":
			c.unread.WriteString("-ERR unknown command\r\n")
		default:
			c.unread.WriteString("+OK\r\n")
		}
	}
	c.begun = append(c.begun[:0], rest...)
	return len(p), nil
}

// cutCommand takes a command off the front of p, and reports whether there is a whole one.
func cutCommand(args *[10][]byte, p []byte) (rest []byte, whole bool) {
	n, p := cutNumber(p)
	for i := range n {
		var size int
		if size, p = cutNumber(p); len(p) < size+2 {
			return nil, false
		}
		args[i], p = p[:size], p[size+2:]
	}
	return p, n > 0
}

// cutNumber takes a line off the front of p that is a number behind one byte. It returns 0 and nothing if p has no whole line.
func cutNumber(p []byte) (n int, rest []byte) {
	end := bytes.Index(p, []byte("\r\n"))
	if end < 1 {
		return 0, nil
	}
	for _, digit := range p[1:end] {
		n = 10*n + int(digit-'0')
	}
	return n, p[end+2:]
}

func (c *canned) Read(p []byte) (int, error)       { return c.unread.Read(p) }
func (c *canned) Close() error                     { return nil }
func (c *canned) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *canned) SetDeadline(time.Time) error      { return nil }
func (c *canned) SetReadDeadline(time.Time) error  { return nil }
func (c *canned) SetWriteDeadline(time.Time) error { return nil }

// hotPaths are what is done for every request, on a server where every key holds holds.
var hotPaths = []struct {
	name, holds string
	allocs      float64 // at most; two for each command are go-redis's, and three more on a real connection
	do          func(context.Context, *lock.Locker) error
}{
	{"acquire and release", "", 15, func(ctx context.Context, l *lock.Locker) error {
		lease, _, err := l.TryAcquire(ctx, cannedKey)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}},
	{"claim and settle", "", 15, func(ctx context.Context, l *lock.Locker) error {
		claim, err := l.Claim(ctx, cannedKey, cannedNote, 0)
		if err != nil {
			return err
		}
		return claim.Lease.Settle(ctx, cannedValue, time.Hour)
	}},
	{"claim of a settled key", valueStart + someToken + someTime + string(cannedValue), 9, meetCanned(lock.Settled)},
	{"claim of a held key", claimStart + someToken + "\x00" + noFence + noHold + someTime + string(cannedNote), 8,
		meetCanned(lock.Held)},
}

const cannedKey = "a key as long as those that keyfunc.Standard makes, or a bit longer than most"

var (
	cannedNote  = bytes.Repeat([]byte("n"), 34)
	cannedValue = bytes.Repeat([]byte("v"), 1<<10)
)

func meetCanned(want lock.State) func(context.Context, *lock.Locker) error {
	return func(ctx context.Context, l *lock.Locker) error {
		claim, err := l.Claim(ctx, cannedKey, cannedNote, 0)
		if err == nil && claim.State != want {
			err = fmt.Errorf("the key is %v, want %v", claim.State, want)
		}
		return err
	}
}

// A change that needs more allocations should be worth it.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	for _, p := range hotPaths {
		t.Run(p.name, func(t *testing.T) {
			locker := cannedLocker(t, p.holds)
			failed := p.do(context.Background(), locker)
			if failed != nil {
				t.Fatal(failed)
			}
			got := testing.AllocsPerRun(2000, func() {
				if err := p.do(context.Background(), locker); err != nil {
					failed = err
				}
			})
			if failed != nil {
				t.Fatal(failed)
			}
			if got > p.allocs {
				t.Errorf("%v allocations, want at most %v", got, p.allocs)
			}
		})
	}
}

// BenchmarkCall measures the client's part of BenchmarkCallers with one caller: the replies are canned.
func BenchmarkCall(b *testing.B) {
	for _, p := range hotPaths {
		b.Run(p.name, func(b *testing.B) {
			locker := cannedLocker(b, p.holds)
			b.ReportAllocs()
			for b.Loop() {
				if err := p.do(context.Background(), locker); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
