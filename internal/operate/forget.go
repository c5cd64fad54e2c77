package operate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// changeFlags are the flags of commands that change something.
type changeFlags struct {
	token, reason string
	evenIfLive    bool
	list          string // the file with keys and tokens, given instead of a token and KEY
}

func (c *config) changeFlags(set *flag.FlagSet) {
	set.StringVar(&c.change.token, "token", "", "the `token` that inspect prints; nothing else is changed")
	set.StringVar(&c.change.reason, "reason", "", "`why`, for the log")
	set.IntVar(&c.replicas, "replicas", 0, "`number` of replicas that must have the change, as lock.WithReplicas")
}

func forgetFlags(set *flag.FlagSet, c *config) {
	c.changeFlags(set)
	lockFlag(set, c)
	set.StringVar(&c.change.list, "list", "", "in place of -token and KEY: the `file` with what scan -status -json has printed, - for the standard input")
	set.BoolVar(&c.change.evenIfLive, "even-if-live", false, "remove a claim even if its lease has not run out")
}

// prepareForget returns the action that removes the claim or the stored response that the token names.
func prepareForget(env Environment, c *config) (action, error) {
	forget := change{
		name: "forget", did: "forgotten", now: lock.Free, hint: "the next try runs",
		alone: ", unless a journal has its outcome",
		make:  func(ctx context.Context, s *session, f Finding) error { return s.forget(ctx, &f, &c.change) },
	}
	if err := c.change.check(); err != nil || c.change.list == "" {
		return forget.run, err
	}
	all, err := readList(c.change.list, env.Stdin)
	return func(ctx context.Context, s *session) error { return forget.runAll(ctx, s, all) }, err
}

// forget removes the row of the journal first, which decides, and then what Redis has.
func (s *session) forget(ctx context.Context, f *Finding, c *changeFlags) error {
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
	make  func(context.Context, *session, Finding) error
}

// changed is the result of a change as JSON.
type changed struct {
	Key    string `json:"key"`
	Result string `json:"result"`
	Before string `json:"state_before"`
	State  string `json:"state"`
}

// run changes the key of the command line.
func (c change) run(ctx context.Context, s *session) error {
	key, err := s.storageKey()
	if err != nil {
		return err
	}
	return c.runOne(ctx, s, key)
}

// listed is a key of a list, with the token of what is to be removed.
type listed struct{ Key, Token string }

// readList reads lines of JSON, as scan prints them.
func readList(name string, stdin io.Reader) (all []listed, err error) {
	text, err := readFile("list", name, stdin, maxList)
	if err != nil || len(text) > maxList {
		return nil, cmp.Or(err, usagef("-list: more than %d bytes are too many", maxList))
	}
	for lines := json.NewDecoder(bytes.NewReader(text)); ; {
		var l listed
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil || l.Key == "" || l.Token == "":
			return nil, usagef("-list: value %d is not what scan -json prints", len(all)+1)
		}
		all = append(all, l)
	}
}

const maxList = 256 << 20 // bytes

// errOnlyStored is the error of a key in a list that has no outcome: for each of these somebody looks into the ledger.
var errOnlyStored = errors.New("-list removes only what is stored")

// runAll changes the keys of a list. It goes on after a key that is free or was refused, and ends with another error.
func (c change) runAll(ctx context.Context, s *session, all []listed) error {
	for _, l := range all {
		if _, err := s.locker.ParseKey(l.Key); err != nil {
			return err
		}
	}
	made := 0
	var refused error
	for _, l := range all {
		s.change.token = l.Token
		err := c.runOne(ctx, s, l.Key)
		switch exitCode(err) {
		case exitDone:
			made++
		case exitFree:
		case exitRefused:
			refused = err
		default:
			return fmt.Errorf("%d of %d %s before this: %w", made, len(all), c.did, err)
		}
	}
	fmt.Fprintf(s.Stderr, "%s: %d of %d\n", c.did, made, len(all))
	return refused
}

// runOne looks at the key, makes the change, and logs who has made it, why, and to what.
func (c change) runOne(ctx context.Context, s *session, key string) error {
	f, err := s.find(ctx, key)
	if errors.Is(err, lock.ErrNotStorageKey) { // it may be a raw key, which is not to be logged
		return err
	}
	before := "unknown"
	if err == nil || errors.Is(err, errFree) {
		before = f.State().String()
	}
	log := s.log.With("user", s.User, "reason", s.change.reason, "key", f.Redis.Key, "token", s.change.token, "before", before)
	isListed := s.change.list != ""
	switch {
	case err != nil:
	case isListed && f.State() != lock.Settled:
		err = errOnlyStored
	default:
		err = c.make(ctx, s, f)
	}
	if err != nil {
		log.Warn(c.name, "err", err)
		if errors.Is(err, errFree) && !s.json && !isListed {
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
	case isListed:
		hint = f.Redis.Key
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
	case c.list != "" && (c.token != "" || c.evenIfLive):
		return usagef("-list: give neither -token nor -even-if-live")
	case c.list == "" && c.token == "":
		return usagef("-token is missing: inspect prints it")
	case strings.TrimSpace(c.reason) == "":
		return usagef("-reason is missing: it is logged")
	}
	return nil
}
