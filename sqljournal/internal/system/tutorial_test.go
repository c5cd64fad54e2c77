package system_test

import (
	"context"
	"fmt"
	"go/format"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

// The tutorial's programs are formatted, and vet has no complaints.
func TestTutorialPrograms(t *testing.T) {
	t.Parallel()
	programs := tutorialPrograms(t)
	for _, service := range []struct{ main, orders string }{
		{programs[0], programs[1]}, {programs[0], programs[2]},
	} {
		dir := t.TempDir()
		writeModule(t, dir)
		for name, program := range map[string]string{"main.go": service.main, "orders.go": service.orders} {
			write(t, dir, name, program)
			if formatted, err := format.Source([]byte(program)); err != nil || string(formatted) != program {
				t.Errorf("%s is not formatted: %v", name, err)
			}
		}
		vet := exec.Command("go", "vet", ".")
		vet.Dir, vet.Env = dir, offline()
		if output, err := vet.CombinedOutput(); err != nil {
			t.Errorf("go vet: %v\n%s", err, output)
		}
	}
}

// Every command of the tutorial prints what the page says. The test makes the go.mod, so that nothing is downloaded, and
// starts the Redis. It takes free ports and a shorter lease, and a handler waits for the test instead of 3 s.
func TestTutorial(t *testing.T) {
	t.Parallel()
	redistest.Long(t)
	for _, tool := range []string{"bash", "curl", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	_, redisPort, err := net.SplitHostPort(redistest.Start(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	free := httptest.NewServer(nil) // its port is, from now on
	free.Close()
	commands, programs := tutorialCommands(readTutorial(t)), tutorialPrograms(t)
	changes := strings.NewReplacer("7379", redisPort, "8080", strings.TrimPrefix(free.URL, "http://127.0.0.1:"),
		`lock.New(client, "shop")`, `lock.New(client, "shop", lock.WithTTL(3e9))`,
		"time.Sleep(3 * time.Second)", "pause()")
	for i, program := range programs {
		programs[i] = changes.Replace(program)
	}

	dir := t.TempDir()
	writeModule(t, dir)
	write(t, dir, "main.go", programs[0])
	write(t, dir, "orders.go", programs[1])
	write(t, dir, "next.go.1", programs[2])
	write(t, dir, "pause.go", pauseProgram)
	script := new(strings.Builder)
	script.WriteString("trap '[ -z \"$SHOP\" ] || kill -9 $SHOP' EXIT; trap 'exit 1' TERM\n")
	for i, c := range commands {
		fmt.Fprintf(script, "%s\n", c.script(i, changes))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience) // it builds twice
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", script.String())
	bash.Dir = dir
	bash.Env = offline()
	bash.Cancel = func() error { return bash.Process.Signal(syscall.SIGTERM) }
	bash.WaitDelay = time.Second
	if output, err := bash.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}

	var got, want strings.Builder
	for i, c := range commands {
		printed, _ := os.ReadFile(filepath.Join(dir, fmt.Sprintf("out.%d", i))) // none: the script has ended before
		fmt.Fprintf(&want, "$ %s\n%s\n", c.line, strings.TrimSpace(c.prints))
		if strings.HasPrefix(c.line, "TOKEN=") {
			c.line = "TOKEN=" + token.FindString(got.String()) // what inspect has printed
		}
		fmt.Fprintf(&got, "$ %s\n%s\n", c.line, strings.TrimSpace(shellNotice.ReplaceAllString(string(printed), "")))
	}
	if got, want := maskTranscript(got.String()), maskTranscript(want.String()); got != want {
		t.Errorf("got\n%s\nthe page has\n%s", got, want)
	}
}

// offline returns an environment in which go downloads nothing.
func offline() []string {
	return append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=")
}

// tutorialPrograms returns the page's programs: main.go, orders.go, and the orders.go with a journal.
func tutorialPrograms(t *testing.T) (programs []string) {
	t.Helper()
	for _, part := range strings.Split(readTutorial(t), "```go\n")[1:] {
		program, _, _ := strings.Cut(part, "```")
		programs = append(programs, program)
	}
	if len(programs) != 3 {
		t.Fatalf("%d programs, want 3", len(programs))
	}
	return programs
}

func readTutorial(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// tutorialCommand is a line of the page after "$ ", and the lines below it.
type tutorialCommand struct{ line, prints string }

func tutorialCommands(page string) (commands []tutorialCommand) {
	inBlock := false
	for line := range strings.Lines(regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(page, "")) {
		code, indented := strings.CutPrefix(line, "    ")
		inBlock = indented || inBlock && line == "\n"
		switch command, ok := strings.CutPrefix(code, "$ "); {
		case indented && ok:
			commands = append(commands, tutorialCommand{line: strings.TrimSpace(command)})
		case inBlock && len(commands) > 0:
			commands[len(commands)-1].prints += code
		}
	}
	return commands
}

// script returns what the test runs for the command, with its output in the file out.i.
func (c tutorialCommand) script(i int, changes *strings.Replacer) string {
	switch {
	case strings.HasPrefix(c.line, "mkdir "), strings.HasPrefix(c.line, "redis-server "), strings.HasSuffix(c.line, " shutdown"):
		return "" // done by the test
	case strings.HasPrefix(c.line, "TOKEN="):
		return fmt.Sprintf("TOKEN=$(sed -n 's/^token *//p' out.%d)", i-1) // of the inspect before
	}
	line := strings.NewReplacer(
		"go mod tidy && ", "",
		"SHOP=$!; sleep 1", "SHOP=$!", // see below
		"sleep 1;", awaitBegun,
	).Replace(c.line)
	if line == "kill $SHOP; go build -o ." {
		line = "mv next.go.1 orders.go; " + line
	}
	before, after := "", ""
	if strings.Contains(line, awaitBegun) || strings.Contains(line, "--max-time") {
		before, after = "rm -f begun; touch hold", awaitBegun+" rm -f hold"
	}
	if strings.HasPrefix(line, "./shop ") {
		after = "until curl -s -o /dev/null 127.0.0.1:8080; do kill -0 $SHOP || exit 1; sleep 0.01; done"
	}
	return changes.Replace(fmt.Sprintf("%s\n{ %s\n} >out.%d 2>&1\n%s", before, line, i, after))
}

// awaitBegun waits until a handler is in pause.
const awaitBegun = "until [ -e begun ]; do sleep 0.01; done;"

// pauseProgram waits in a handler for as long as the file hold exists.
const pauseProgram = `package main

import (
	"os"
	"time"
)

func pause() {
	os.WriteFile("begun", nil, 0o600)
	for {
		if _, err := os.Stat("hold"); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
`

// shellNotice is what a shell that is not interactive says of a process that was killed.
var shellNotice = regexp.MustCompile(`(?m)^bash: .*(Killed|Terminated).*\n`)

var token = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// maskTranscript replaces the nth token or random number by n, and times by a mark.
func maskTranscript(text string) string {
	text = regexp.MustCompile(`after \d+ milliseconds`).ReplaceAllString(text, "<time>")
	seen := map[string]string{}
	text = regexp.MustCompile(`number [A-Z2-7]{4}\b|`+token.String()).ReplaceAllStringFunc(text, func(s string) string {
		if seen[s] == "" {
			seen[s] = fmt.Sprintf("<random %d>", len(seen)+1)
		}
		return seen[s]
	})
	return strings.ReplaceAll(text, "\r", "")
}

// writeModule writes the go.mod of a module that uses this one and the root as they are here.
func writeModule(t *testing.T, dir string) {
	t.Helper()
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "go.mod", "module shop\n\ngo 1.25.0\n")
	write(t, dir, "go.work", fmt.Sprintf("go 1.25.0\n\nuse (\n.\n%s\n%s\n)\n", here, filepath.Dir(here)))
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
