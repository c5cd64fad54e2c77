package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
)

func TestScan(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		abandoned := s.strand("abandoned")
		s.post("settled")
		s.works = false
		s.post("held")
		held := s.locker.StorageKey(keyfunc.StandardKey("ann", "POST", "/payments", "held"))
		r := s.run("scan", "-namespace", "shop", "-rate", "1000000")
		r.want(t, exitDone, "abandoned  "+abandoned+"  ", "held       "+held+"  ", "found 1 held and 1 abandoned keys")
		if n := strings.Count(r.stdout, "\n"); n != 2 {
			t.Errorf("%d lines:\n%s", n, r.stdout)
		}
		r = s.run("scan", "-namespace", "shop", "-json", "-rate=100000")
		for line := range strings.Lines(r.stdout) {
			var f facts
			if err := json.Unmarshal([]byte(line), &f); err != nil || f.Token == "" || f.State != "held" && f.State != "abandoned" {
				t.Errorf("%q: %v", line, err)
			}
		}
		s.run("scan", "-namespace", "other").want(t, exitDone, "found 0 held and 0 abandoned keys")
	})
}

// A time that is damaged, beyond the years of JSON, does not end a scan or keep a key from being inspected.
func TestDamagedTime(t *testing.T) {
	t.Parallel()
	redis := redistest.Mini(t)
	key := "shop:{0000}" + strings.Repeat("0", 64)
	claim := "OGc\x01" + strings.Repeat("t", 16) + "\x00" + strings.Repeat("0", 16) + strings.Repeat("\x00", 8)
	for _, claimed := range []string{"\x7f\xff\xff\xff\xff\xff\xff\xff", "\x80\x00\x00\x00\x00\x00\x00\x00"} {
		if err := redis.Client(t).Set(t.Context(), key, claim+claimed, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"inspect", key}, {"scan", "-namespace", "shop"}} {
			r := onceguard(t, append(args, "-json", "-redis", "redis://"+redis.Addr())...)
			r.want(t, exitDone, `"state":"held"`)
		}
	}
}

// silentJournal is a journal whose database does not answer.
type silentJournal struct{ Journal }

func (silentJournal) Namespace() string { return "shop" }
func (silentJournal) IsIntent() bool    { return true }
func (silentJournal) Close() error      { return nil }

func (silentJournal) Rows(ctx context.Context, _ bool) ([]Row, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestScanOfASilentJournal(t *testing.T) {
	t.Parallel()
	env := Environment{OpenJournal: func(context.Context, string, string) (Journal, error) { return silentJournal{}, nil }}
	for _, args := range [][]string{{"scan"}, {"scan", "-status", "503"}} {
		r := onceguardWith(t, env, append(args, "-redis", "none", "-journal", "any", "-namespace", "shop", "-timeout", "10ms")...)
		r.want(t, exitFailed, "deadline exceeded")
	}
}

// A scan is as slow as it was told to be, and ends when it is told to.
func TestScanIsPaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	for i := range 100 {
		if err := client.Set(t.Context(), string(rune('a'+i)), "", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	env := Environment{Stdout: new(bytes.Buffer), Stderr: &stderr, Getenv: func(name string) string {
		return map[string]string{"REDIS_URL": "redis://" + server.Addr()}[name]
	}}
	done := make(chan int)
	go func() { done <- Run(ctx, []string{"scan", "-namespace", "shop", "-rate", "1"}, env) }()
	select {
	case code := <-done:
		t.Errorf("it ended with %d: %s", code, stderr.String())
	case <-time.After(100 * time.Millisecond): // it would take 100 s
	}
	cancel()
	if code := <-done; code != exitFailed || !strings.Contains(stderr.String(), "canceled") {
		t.Errorf("%d, %s", code, stderr.String())
	}
}

// rowsJournal is a journal with rows that have no outcome.
type rowsJournal struct {
	silentJournal
	rows []Row
}

func (j rowsJournal) Rows(context.Context, bool) ([]Row, error) { return j.rows, nil }

// fault: Redis is asked for each row of a long list as fast as it answers. Expected: the rows count for -rate.
func TestScanOfRowsIsPaced(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	var rows []Row
	for i := range 30 {
		rows = append(rows, Row{Key: fmt.Sprintf("shop:{0000}%064d", i), State: journal.Unfinished, Token: "t"})
	}
	env := Environment{OpenJournal: func(context.Context, string, string) (Journal, error) { return rowsJournal{rows: rows}, nil }}
	start := time.Now()
	r := onceguardWith(t, env, "scan", "-redis", "redis://"+mini.Addr(), "-journal", "any", "-namespace", "shop", "-rate", "100")
	r.want(t, exitDone, "found 0 held and 30 abandoned keys")
	if took := time.Since(start); took < 300*time.Millisecond { // three steps of ten, a tenth of a second each
		t.Errorf("30 rows at 100 a second take %v", took)
	}
}
