package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// lockFlag is for the commands that a lock needs: one that is held has no outcome, and frees itself.
func lockFlag(set *flag.FlagSet, c *config) {
	set.Var((*filled)(&c.lock), "lock", "the `name` of a lock (lock.Locker.Acquire), in place of KEY")
}

func prepareInspect(Environment, *config) (action, error) { return inspect, nil }

// inspect prints what the key holds.
func inspect(ctx context.Context, s *session) error {
	key, err := s.storageKey()
	if err != nil {
		return err
	}
	f, err := s.read(ctx, key)
	if exitCode(err) == exitFailed && s.journal != nil && errors.As(err, new(redisError)) {
		s.leaveRedis(ctx, err)
		f, err = s.read(ctx, key)
	}
	switch {
	case exitCode(err) == exitFailed && s.noRedis != nil: // the journal does not answer either
		return errors.Join(s.noRedis, err)
	case err != nil && !errors.Is(err, errFree):
		return err
	case s.noRedis != nil: // instead of errFree, because Redis may have the key
		err = fmt.Errorf("only the journal was asked: %w", s.noRedis)
	}
	if s.json {
		return errors.Join(err, writeJSON(s.Stdout, s.newFacts(&f)))
	}
	s.writeFacts(&f, time.Now())
	return err
}

// writeFacts writes what the key holds, for people, and what the key was made of if the command line had that instead.
func (s *session) writeFacts(f *Finding, now time.Time) {
	write := func(name, text string) { fmt.Fprintf(s.Stdout, "%-8s %s\n", name, printable(text)) }
	write("key", f.Redis.Key)
	if s.key == "" {
		write("made of", s.madeOf())
	}
	write("state", fmt.Sprintf("%v: %s", f.State(), f.Meaning()))
	if f.State() == lock.Free {
		return
	}
	write("token", tokenOf(f))
	for _, line := range f.Lines(now) {
		write(line.Name, line.Text)
	}
}
