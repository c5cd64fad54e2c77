package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// changeFlags are the flags of commands that change something.
type changeFlags struct {
	token, reason string
	evenIfLive    bool
}

func (c *config) changeFlags(set *flag.FlagSet) {
	set.StringVar(&c.change.token, "token", "", "the `token` that inspect has printed: nothing else is touched")
	set.StringVar(&c.change.reason, "reason", "", "`why`, for the log")
	set.IntVar(&c.replicas, "replicas", 0, "`number` of replicas that must have the change")
}

func forgetFlags(set *flag.FlagSet, c *config) {
	c.changeFlags(set)
	set.BoolVar(&c.change.evenIfLive, "even-if-live", false, "remove a claim whose lease has not run out as well")
}

// prepareForget returns the action that removes the claim or the stored response that the token names.
func prepareForget(_ environment, c *config) (action, error) {
	var opts []lock.ForgetOption
	if c.change.evenIfLive {
		opts = append(opts, lock.EvenIfLive())
	}
	forget := change{
		name: "forget", did: "forgotten", now: lock.Free, hint: "the next try runs the request, unless a journal has its outcome",
		make: func(ctx context.Context, s *session, info lock.Info) error {
			return s.locker.Forget(ctx, info.Key, c.change.token, opts...)
		},
	}
	return forget.run, c.change.check()
}

// change is a change that a command makes to a key.
type change struct {
	name string     // for the log
	did  string     // what was done, for the output
	now  lock.State // the state after it
	hint string     // what happens next, for people
	make func(context.Context, *session, lock.Info) error
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
	info, err := s.look(ctx)
	if errors.Is(err, lock.ErrNotStorageKey) { // it may be a raw key, which is not to be logged
		return err
	}
	before := "unknown"
	if err == nil || errors.Is(err, errFree) {
		before = info.State.String()
	}
	log := s.log.With("user", s.user, "reason", s.change.reason, "key", info.Key, "token", s.change.token, "before", before)
	if err == nil {
		err = c.make(ctx, s, info)
	}
	if err != nil {
		log.Warn(c.name, "err", err)
		if errors.Is(err, errFree) && !s.json {
			fmt.Fprintln(s.stdout, "nothing was changed")
			s.writeFacts(info, time.Now())
		}
		return err
	}
	log.Info(c.name, "result", c.did)
	if s.json {
		return writeJSON(s.stdout, changed{Key: info.Key, Result: c.did, Before: info.State.String(), State: c.now.String()})
	}
	fmt.Fprintf(s.stdout, "%s: it was %v; %s\n", c.did, info.State, c.hint)
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
