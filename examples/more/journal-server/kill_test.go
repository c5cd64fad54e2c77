package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

// program is the whole program in a process that a test can kill. Its arguments are the flags -db, -redis and -provider.
var program = redistest.Program{Name: "journal-server", Run: func(args []string, _ io.Reader, out io.Writer) error {
	cfg := config{addr: "127.0.0.1:0", db: args[0], redis: args[1], provider: args[2], opTimeout: patience}
	return run(context.Background(), slog.New(slog.NewTextHandler(out, nil)), cfg)
}}

var listening = regexp.MustCompile(`msg=listening addr=(\S+)`)

func runProgram(t *testing.T, db, redis string, b *bank) (*redistest.Process, client) {
	t.Helper()
	p := redistest.Run(t, "journal-server", db, redis, b.URL)
	for {
		if found := listening.FindStringSubmatch(p.Line(t)); found != nil {
			return p, client{t, "http://" + found[1]}
		}
	}
}

// fault: kill -9 when the provider has charged and not answered, and when it has not charged yet. The program starts again
// and sweeps, and the client repeats its request until it gets its 201.
func TestKilled(t *testing.T) {
	for name, f := range map[string]fault{"after the charge": holdsReply, "before the charge": holdsRequest} {
		t.Run(name, func(t *testing.T) {
			eachRedis(t, func(t *testing.T, db, redis string) { testKilled(t, db, redis, f) })
		})
	}
}

func testKilled(t *testing.T, db, redis string, f fault) {
	b := openBank(t, f)
	process, c := runProgram(t, db, redis, b)
	answer := make(chan error, 1)
	go func() {
		_, err := c.send("POST", "ann", "k1", "/charges", euros)
		answer <- err
	}()
	b.await(t)
	process.Kill(t)
	if err := <-answer; err == nil {
		t.Error("the program has answered")
	}
	b.fault.Store(int32(works))
	d, err := connect(db)
	if err != nil {
		t.Fatal(err)
	}
	elapse(t, d)
	if err := d.close(); err != nil {
		t.Error(err)
	}

	_, c = runProgram(t, db, redis, b)
	made := c.pay("ann", "k1", "/charges", euros)
	deadline := time.Now().Add(time.Minute)
	for ; made.status == http.StatusConflict && !t.Failed() && time.Now().Before(deadline); made = c.pay("ann", "k1", "/charges", euros) {
		c.wantProblem(made, "outcome-unknown", "in-flight") // until the first sweep, at the start
		time.Sleep(10 * time.Millisecond)
	}
	if made.status != http.StatusCreated || made.replayed != (f == holdsReply) {
		t.Errorf("got %d %s, replayed %v", made.status, made.body, made.replayed)
	}
	c.wantReplay(c.pay("ann", "k1", "/charges", euros), made)
	c.wantCharge("ann", made)
	b.wantCharges(t, 1)
}
