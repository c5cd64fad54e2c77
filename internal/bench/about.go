package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// about is what somebody must know who wants the same numbers.
type about struct {
	processor string
	cores     int
	load      string // the load averages before anything was measured
	commit    string
	date      time.Time
	versions  []string
}

// modules are those whose versions matter.
var modules = []struct{ path, name string }{
	{"github.com/redis/go-redis/v9", "go-redis"},
	{"github.com/gofiber/fiber/v2", "fiber"},
	{"github.com/gofiber/storage/redis/v3", "gofiber/storage/redis"},
	{"github.com/valyala/fasthttp", "fasthttp"},
	{"github.com/bsm/redislock", "bsm/redislock"},
	{"github.com/go-redsync/redsync/v4", "redsync"},
	{"github.com/redis/rueidis", "rueidis"},
}

func aboutMachine(ctx context.Context) about {
	a := about{
		processor: processor(), cores: runtime.NumCPU(), load: load(), commit: commit(ctx), date: time.Now(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return a
	}
	for _, m := range modules {
		for _, dep := range info.Deps {
			if dep.Path == m.path {
				a.versions = append(a.versions, m.name+" "+strings.TrimPrefix(dep.Version, "v"))
			}
		}
	}
	return a
}

func (a about) write(w io.Writer, cfg config, columns []column) {
	way := "in process"
	if cfg.http {
		way = "over loopback HTTP, client and server in one process"
	}
	var redis string
	for _, c := range columns {
		redis = c.redis
	}
	a.head(w, way, redis, cfg.flags)
	fmt.Fprintf(w, "- %s of %v, seed: %d; medians (and quartiles); bodies of %d bytes; pools as large as the number of "+
		"callers\n", plural(cfg.rounds, "round"), cfg.time, cfg.seed, bodySize)
	for _, c := range columns {
		fmt.Fprintf(w, "- %s: %s\n", plural(c.callers, "caller"), c.place)
	}
}

// head writes what is the same whatever was measured.
func (a about) head(w io.Writer, way, redis string, flags []string) {
	fmt.Fprintf(w, "Measured %s, %s.\n\n", a.date.Format(time.DateOnly), way)
	fmt.Fprintf(w, "- Machine: %s, %s, %s/%s; load before: %s\n",
		a.processor, plural(a.cores, "core"), runtime.GOOS, runtime.GOARCH, a.load)
	fmt.Fprintf(w, "- Versions: %s, Redis %s, %s\n", runtime.Version(), redis, strings.Join(a.versions, ", "))
	fmt.Fprintf(w, "- Commit: %s; flags: %q\n", a.commit, strings.Join(flags, " "))
}

const unknown = "unknown"

func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 3 {
		return strings.Join(fields[:3], " ")
	}
	return unknown
}

func commit(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return unknown
	}
	commit := strings.TrimSpace(string(head))
	// Without the locks of git status, so that somebody else's git is not disturbed.
	changes, err := exec.CommandContext(ctx, "git", "--no-optional-locks", "status", "--porcelain").Output()
	if err != nil || len(changes) > 0 {
		return commit + "-dirty"
	}
	return commit
}
