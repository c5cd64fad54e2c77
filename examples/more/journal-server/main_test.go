package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m, program) }

// logLines receives the lines of a log.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(bytes.TrimSpace(line))
	return len(line), nil
}

// addr returns the address that the program listens on.
func (l logLines) addr(t *testing.T) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line := <-l:
			if found := listening.FindStringSubmatch(line); found != nil {
				return found[1]
			}
		case <-deadline:
			t.Fatal("the program does not listen")
		}
	}
}

// The program answers a request that runs when it is stopped, and then removes its temporary database.
func TestRun(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, stop := context.WithCancel(t.Context())
	log, end := make(logLines, 100), make(chan error, 1)
	go func() {
		end <- run(ctx, slog.New(slog.NewTextHandler(log, nil)), config{addr: "127.0.0.1:0", opTimeout: patience})
	}()
	c := client{t, "http://" + log.addr(t)}
	if files, err := os.ReadDir(temp); err != nil || len(files) != 1 {
		t.Errorf("while it runs: %v, %v; want one folder", files, err)
	}

	answers := make(chan response, 2)
	for range 2 {
		go func() { answers <- c.pay("ann", "k1", "/payments?delay=6s", euros) }()
	}
	if got := <-answers; got.status != http.StatusConflict {
		t.Errorf("the duplicate: got %d %s, want 409", got.status, got.body)
	}
	stop()
	if got := <-answers; got.status != http.StatusCreated {
		t.Errorf("the first: got %d %s, want 201", got.status, got.body)
	}
	select {
	case err := <-end:
		if err != nil {
			t.Errorf("run: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the program did not end")
	}
	if files, err := os.ReadDir(temp); err != nil || len(files) != 0 {
		t.Errorf("left behind: %v, %v; want nothing", files, err)
	}
}
