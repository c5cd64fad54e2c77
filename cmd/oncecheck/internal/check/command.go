package check

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

// Run runs the command, for no longer than the limit, and returns its standard output.
func (c Command) Run(ctx context.Context, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %v", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", string(c))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A command may leave a server behind, which keeps the pipes open.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("the command was ended: %w", context.Cause(ctx))
	case err != nil: // the command is not shown: it may have a password in it
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return nil, fmt.Errorf("the command failed: %w: %s", err, line)
	}
	return stdout.Bytes(), nil
}

// parseCount reads how often something has happened: a whole number, or a JSON array, whose length it is. An object with
// one array among its members (as in {"data": [...]}) counts as that array.
func parseCount(output []byte) (int, error) {
	text := bytes.TrimSpace(output)
	if n, err := strconv.Atoi(string(text)); err == nil && n >= 0 {
		return n, nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		members = map[string]json.RawMessage{"": text}
	}
	arrays, n := 0, 0
	for _, member := range members {
		var list []json.RawMessage
		if json.Unmarshal(member, &list) == nil && list != nil {
			arrays, n = arrays+1, len(list)
		}
	}
	switch arrays {
	case 0:
		return 0, errors.New("it is neither a number of effects nor a JSON array")
	case 1:
		return n, nil
	}
	return 0, errors.New("the object has several arrays: which one to count?")
}
