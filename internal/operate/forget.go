package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/onceguard/onceguard/internal/finding"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// changeFlags are the flags of commands that change something.
type changeFlags struct {
	token, reason string
	evenIfLive    bool
}

func (c *config) changeFlags(set *flag.FlagSet) {
	set.StringVar(&c.change.token, "token", "", "the `token` that inspect prints; nothing else is changed")
	set.StringVar(&c.change.reason, "reason", "", "`why`, for the log")
	set.IntVar(&c.replicas, "replicas", 0, "`number` of replicas that must have the change, as lock.WithReplicas")
}

func forgetFlags(set *flag.FlagSet, c *config) {
	c.changeFlags(set)
	lockFlag(set, c)
	set.BoolVar(&c.change.evenIfLive, "even-if-live", false, "remove a claim even if its lease has not run out")
}

// prepareForget returns the action that removes the claim or the stored response that the token names.
func prepareForget(_ Environment, c *config) (action, error) {
	forget := change{
		name: "forget", did: "forgotten", now: lock.Free, hint: "the next try runs",
		alone: ", unless a journal has its outcome",
		make:  func(ctx context.Context, s *session, f finding.Finding) error { return s.forget(ctx, &f, &c.change) },
	}
	return forget.run, c.change.check()
}

// forget removes the row of the journal first, which decides, and then what Redis has.
func (s *session) forget(ctx context.Context, f *finding.Finding, c *changeFlags) error {
	ofRedis, ofRow := splitToken(c.token)
	if f.Row.State != journal.Absent {
		switch {
		case f.Redis.State != lock.Free && f.Redis.Token != ofRedis: // found out before anything is removed
			return fmt.Errorf("%w: Redis has another", lock.ErrChanged)
		case f.Redis.State == lock.Held && !c.evenIfLive:
			return lock.ErrLive
		}
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		if err := s.journal.Remove(ctx, f.Redis.Key, ofRow, c.evenIfLive); err != nil {
			return err
		}
	}
	if f.Redis.State == lock.Free {
		return nil
	}
	var opts []lock.ForgetOption
	if c.evenIfLive {
		opts = append(opts, lock.EvenIfLive())
	}
	err := s.locker.Forget(ctx, f.Redis.Key, ofRedis, opts...)
	if err != nil && f.Row.State != journal.Absent {
		return fmt.Errorf("the journal's row is removed, but not what Redis has: %v", err)
	}
	return err
}

// change is a change that a command makes to a key.
type change struct {
	name string     // for the log
	did  string     // what was done, for the output
	now  lock.State // the state after it
	hint string     // what happens next, for people

	alone string // added to hint if this command cannot ask a journal
	make  func(context.Context, *session, finding.Finding) error
}

// changed is the result of a change as JSON.
type changed struct {
	Key    string `json:"key"`
	Result string `json:"result"`
	Before string `json:"state_before"`
	State  string `json:"state"`
}

// run looks at the key, makes the change, and logs who has made it, why, and to what.
func (c change) run(ctx context.Context, s *session) error {
	f, err := s.find(ctx)
	if errors.Is(err, lock.ErrNotStorageKey) { // it may be a raw key, which is not to be logged
		return err
	}
	before := "unknown"
	if err == nil || errors.Is(err, errFree) {
		before = f.State().String()
	}
	log := s.log.With("user", s.User, "reason", s.change.reason, "key", f.Redis.Key, "token", s.change.token, "before", before)
	if err == nil {
		err = c.make(ctx, s, f)
	}
	if err != nil {
		log.Warn(c.name, "err", err)
		if errors.Is(err, errFree) && !s.json {
			fmt.Fprintln(s.Stdout, "nothing was changed")
			s.writeFacts(&f, time.Now())
		}
		return err
	}
	log.Info(c.name, "result", c.did)
	if s.json {
		return writeJSON(s.Stdout, changed{Key: f.Redis.Key, Result: c.did, Before: before, State: c.now.String()})
	}
	hint := c.hint
	switch {
	case s.lock != "" || f.Redis.IsLock:
		hint = "the next caller gets it"
	case s.journal == nil:
		hint += c.alone
	}
	fmt.Fprintf(s.Stdout, "%s: it was %s; %s\n", c.did, before, hint)
	return nil
}

func (c *changeFlags) check() error {
	switch {
	case c.token == "":
		return usagef("-token is missing: inspect prints it")
	case strings.TrimSpace(c.reason) == "":
		return usagef("-reason is missing: it is logged")
	}
	return nil
}
