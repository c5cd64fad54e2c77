// The machine and the versions that a run depends on, and the cores that it is pinned to.

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// compared matches the modules whose versions matter.
var compared = regexp.MustCompile("redis|redsync|fiber|fasthttp|pgx")

// about returns the head of a report: what somebody needs in order to get the same numbers. It is called before anything
// is measured, since it reads the load of the machine.
func about(ctx context.Context) string {
	load, _ := os.ReadFile("/proc/loadavg") // an error leaves it empty
	redis, _, _ := strings.Cut(output(ctx, "redis-server", "--version"), " sha=")
	versions := []string{runtime.Version(), redis}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if compared.MatchString(dep.Path) {
				versions = append(versions, strings.TrimPrefix(dep.Path, "github.com/")+" "+dep.Version)
			}
		}
	}
	// Without locks, so that a git command that runs at the same time is not disturbed.
	commit := output(ctx, "git", "--no-optional-locks", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
	return fmt.Sprintf("Measured %s.\n\n"+
		"- Machine: %s, %s, %s/%s; load before: %.14s\n- Versions: %s\n- Commit: %s; flags: %q\n",
		time.Now().Format(time.DateOnly), procField("cpuinfo", "model name"), plural(runtime.NumCPU(), "core"),
		runtime.GOOS, runtime.GOARCH, load, strings.Join(versions, ", "), commit, strings.Join(os.Args[1:], " "))
}

// output returns what a command prints, or the error.
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// procField returns the value of the first line "name: value" of a file in /proc.
func procField(file, name string) string {
	text, _ := os.ReadFile("/proc/" + file) // an error leaves it empty
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// pinned returns a command that is pinned to the core, unless that is empty.
func pinned(core string, command ...string) *exec.Cmd {
	if core != "" {
		command = append([]string{"taskset", "--cpu-list", core}, command...)
	}
	return exec.Command(command[0], command[1:]...)
}

// cores are the first and the last core that may be used. The zero value pins nothing.
type cores struct{ first, last string }

// pin pins this process to the first core that it may run on. Where that is not possible it prints why, and nothing is
// pinned.
func pin(ctx context.Context, progress io.Writer) cores {
	ids := strings.FieldsFunc(procField("self/status", "Cpus_allowed_list"), func(r rune) bool { return r == ',' || r == '-' })
	c := cores{ids[0], ids[len(ids)-1]}
	runtime.GOMAXPROCS(1)
	// Twice, as a thread that was not yet pinned may have started another one.
	for range 2 {
		command := exec.CommandContext(ctx, "taskset", "--all-tasks", "--cpu-list", "--pid", c.first, strconv.Itoa(os.Getpid()))
		if out, err := command.CombinedOutput(); err != nil {
			fmt.Fprintf(progress, "bench: not pinned: %v %s\n", err, out)
			return cores{}
		}
	}
	return c
}

// redis returns the core of a Redis that so many callers use, empty if it is not to be pinned. With one caller, Redis and
// bench never run at the same time, and another core would have to be woken for each command.
func (c cores) redis(callers int) string {
	if callers == 1 {
		return c.first
	}
	return c.last
}

// describe returns where bench and Redis run for so many callers.
func (c cores) describe(callers int) string {
	if c.first == "" {
		return "not pinned"
	}
	return fmt.Sprintf("bench on core %s, Redis on core %s", c.first, c.redis(callers))
}
