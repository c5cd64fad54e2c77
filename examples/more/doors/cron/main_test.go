package main

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "job", Run: func(args []string, _ io.Reader, out io.Writer) error {
		report, replayed, err := run(context.Background(), args[0], args[1])
		fmt.Fprintln(out, report, replayed)
		return err
	}})
}

// Five machines at once, and one whose clock is late.
func TestManyMachines(t *testing.T) {
	server := redistest.Start(t)
	var machines []*redistest.Process
	for range 5 {
		machines = append(machines, redistest.Run(t, "job", server.Addr(), "2026-11-24"))
	}
	wrote := 0
	for _, machine := range machines {
		if machine.Line(t) == "report of 2026-11-24 false" {
			wrote++
		}
	}
	if late := redistest.Run(t, "job", server.Addr(), "2026-11-24").Line(t); late != "report of 2026-11-24 true" || wrote != 1 {
		t.Errorf("the late machine: %q; %d machines wrote", late, wrote)
	}
	if next := redistest.Run(t, "job", server.Addr(), "2026-11-25").Line(t); next != "report of 2026-11-25 false" {
		t.Errorf("the next day: %q", next)
	}
	wantReports(t, server, 2)
}

// fault: the machine that does the job is killed before its effect. Another one, which waits, does the job.
func TestMachineKilled(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	effect := proxy.HoldRequest(redistest.Named("RPUSH"))
	first := redistest.Run(t, "job", proxy.Addr(), "2026-11-24")
	effect.Wait(t)

	other := redistest.NewProxy(t, server.Addr())
	waits := other.HoldReply(redistest.Named("SET"))
	second := redistest.Run(t, "job", other.Addr(), "2026-11-24")
	waits.Wait(t)
	waits.Lift()
	first.Kill(t)
	server.Elapse(t, 10*time.Second) // the lease
	if got := second.Line(t); got != "report of 2026-11-24 false" {
		t.Errorf("%q", got)
	}
	wantReports(t, server, 1)
}

func wantReports(t *testing.T, server *redistest.Server, want int64) {
	t.Helper()
	if n := server.Client(t).LLen(t.Context(), "reports").Val(); n != want {
		t.Errorf("%d reports, want %d", n, want)
	}
}
