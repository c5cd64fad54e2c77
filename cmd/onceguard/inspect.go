package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onceguard/onceguard/lock"
)

func prepareInspect(environment, *config) (action, error) { return inspect, nil }

// inspect prints what the key holds.
func inspect(ctx context.Context, s *session) error {
	info, err := s.look(ctx)
	if err != nil && !errors.Is(err, errFree) {
		return err
	}
	if s.json {
		return errors.Join(err, writeJSON(s.stdout, newFacts(info)))
	}
	s.writeFacts(info, time.Now())
	return err
}

// facts is a lock.Info as JSON.
type facts struct {
	Key       string     `json:"key"`
	State     string     `json:"state"`
	Token     string     `json:"token,omitempty"`
	Fence     int64      `json:"fence,omitempty"`
	Size      int        `json:"size,omitempty"`
	ClaimedAt *time.Time `json:"claimed_at,omitempty"`
	SettledAt *time.Time `json:"settled_at,omitempty"`
	LeaseLeft int64      `json:"lease_left_ms,omitempty"`
	HoldLeft  int64      `json:"hold_left_ms,omitempty"`
	TTL       int64      `json:"ttl_ms"`
}

func newFacts(info lock.Info) facts {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	return facts{
		Key: info.Key, State: info.State.String(), Token: info.Token, Fence: info.Fence, Size: info.Size,
		ClaimedAt: at(info.ClaimedAt), SettledAt: at(info.SettledAt), LeaseLeft: info.LeaseLeft.Milliseconds(),
		HoldLeft: info.HoldLeft.Milliseconds(), TTL: info.TTL.Milliseconds(),
	}
}

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, printable(strings.TrimSuffix(b.String(), "\n")))
	return err
}

// meaning returns what a state means to a customer.
func meaning(s lock.State) string {
	switch s {
	case lock.Free:
		return "Redis has no such key: it may be mistyped. A request with it runs, unless a journal in a database has " +
			"its outcome, which this command cannot ask"
	case lock.Held:
		return "a request runs, or its process died a moment ago; others wait, or get 409 in-flight"
	case lock.Abandoned:
		return "a request ended without an outcome; retries get 409 outcome-unknown"
	case lock.Settled:
		return "retries get the stored response, or 409 if it could not be kept"
	}
	return ""
}

// writeFacts writes what the key holds, for people, and what the key was made of if the command line had that instead.
func (s *session) writeFacts(info lock.Info, now time.Time) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(s.stdout, "%-8s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("key", "%s", printable(info.Key))
	if s.key == "" {
		row("made of", "namespace %q, %s, and -key", s.namespace, s.request)
	}
	row("state", "%v: %s", info.State, meaning(info.State))
	if info.State == lock.Free {
		return
	}
	row("token", "%s", info.Token)
	if info.Fence != 0 {
		row("fence", "%d", info.Fence)
	}
	if !info.ClaimedAt.IsZero() {
		row("claimed", "%s", moment(info.ClaimedAt, now))
	}
	if !info.SettledAt.IsZero() {
		row("settled", "%s", moment(info.SettledAt, now))
	}
	switch {
	case info.State == lock.Abandoned:
		row("lease", "over")
		row("hold", "%v left", short(info.HoldLeft))
	case info.LeaseLeft > 0:
		row("lease", "%v left, unless it is renewed", short(info.LeaseLeft))
		if info.HoldLeft > 0 {
			row("hold", "%v after that", short(info.HoldLeft))
		}
	}
	if info.TTL < 0 {
		row("ends", "never: another program has taken the expiry off")
	} else {
		row("ends", "in %v", short(info.TTL))
	}
	row("size", "%d bytes", info.Size)
}

// moment returns a time and how long ago it was.
func moment(t, now time.Time) string {
	return fmt.Sprintf("%s, %v ago", t.UTC().Format("2006-01-02 15:04:05 MST"), short(now.Sub(t)))
}

// short returns d in whole seconds, or in milliseconds below ten seconds.
func short(d time.Duration) time.Duration {
	if d.Abs() < 10*time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}
