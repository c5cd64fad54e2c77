// Package hook runs what the user gives beside the URL: a way to count effects, and commands that restart the server or
// stop its store.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Command is a line for sh. The empty one is not given.
type Command string

// Given reports whether the user has given the command.
func (c Command) Given() bool { return c != "" }

// Run runs the command and returns its standard output.
func (c Command) Run(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", string(c))
	var stdout, stderr limited
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A command may leave a server behind, which keeps the pipes open.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("the command was ended: %w", context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("the command failed: %w: %s", err, firstLine(stderr.String())) // which may have a password in it
	}
	return stdout.Bytes(), nil
}

// limited keeps what a command prints, and fails at 64 MiB.
type limited struct{ bytes.Buffer }

// Write keeps p.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > 64<<20 {
		return 0, errors.New("it has printed more than 64 MiB")
	}
	return l.Buffer.Write(p)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// ParseCount reads how often something has happened: a whole number, or a JSON array, whose length it is. An object with
// one array among its members (as in {"data": [...]}) counts as that array.
func ParseCount(output []byte) (int, error) {
	text := bytes.TrimSpace(output)
	if n, err := strconv.Atoi(string(text)); err == nil && n >= 0 {
		return n, nil
	}
	var list []json.RawMessage
	if bytes.HasPrefix(text, []byte("[")) && json.Unmarshal(text, &list) == nil {
		return len(list), nil
	}
	var object map[string]json.RawMessage
	_ = json.Unmarshal(text, &object) // without an object there is no array
	arrays := 0
	for _, member := range object {
		if bytes.HasPrefix(member, []byte("[")) && json.Unmarshal(member, &list) == nil {
			arrays++
		}
	}
	switch arrays {
	case 0:
		return 0, errors.New("it is neither a number of effects nor a JSON array")
	case 1:
		return len(list), nil
	}
	return 0, errors.New("the object has several arrays: which one to count?")
}
