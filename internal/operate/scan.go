package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/lock"
)

func scanFlags(set *flag.FlagSet, c *config) {
	set.Func("status", "list the responses that are stored with this `status` instead, such as 503 or 500-599", c.statuses.set)
	set.IntVar(&c.rate, "rate", 1000, "`keys` to look at in a second, on all servers together")
}

// statuses is a range of statuses, as "503" or "500-599". The zero value has none.
type statuses struct{ low, high int }

func (s *statuses) set(text string) error {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	var errLow, errHigh error
	s.low, errLow = strconv.Atoi(low)
	s.high, errHigh = strconv.Atoi(high)
	if errLow != nil || errHigh != nil || s.low < 200 || s.high > 999 || s.low > s.high {
		return errors.New("want one such as 503, or a range such as 500-599")
	}
	return nil
}

func (s *statuses) isGiven() bool { return s.high > 0 }

// has reports whether a response with one of the statuses is stored.
func (s *statuses) has(f *Finding) bool {
	return f.Stored != nil && s.low <= f.Stored.Status && f.Stored.Status <= s.high
}

const (
	stepsPerSecond = 10
	maxStep        = 1000 // keys in a step, which lock.Scan limits
	maxRate        = 1_000_000
)

func prepareScan(_ Environment, c *config) (action, error) {
	if c.rate < 1 || c.rate > maxRate {
		return nil, UsageError("-rate: %d is not from 1 to %d", c.rate, maxRate)
	}
	return scan, nil
}

// lister lists what a scan finds.
type lister struct {
	*session
	next time.Time // before this no more keys are looked at

	held, abandoned, unanswered, stored, unreadable, foreign int
}

// scan lists the held and abandoned keys of the namespace, and the rows that are done without a response; or, with statuses,
// what is stored with these. The rows of the journal are first, and then the keys that only Redis has.
func scan(ctx context.Context, s *session) error {
	l := &lister{session: s, next: time.Now()}
	listed, err := l.scanJournal(ctx)
	if err != nil {
		return err
	}
	if !s.locker.IsNone() {
		if err := l.scanRedis(ctx, listed); err != nil {
			return err
		}
	}
	l.writeTotals()
	return nil
}

// scanJournal lists the rows of the journal, and returns their keys.
func (l *lister) scanJournal(ctx context.Context) (listed map[string]bool, err error) {
	if l.journal == nil {
		return nil, nil
	}
	within, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	keys, err := l.journal.Keys(within, l.statuses.isGiven())
	listed = make(map[string]bool, len(keys))
	for _, key := range keys {
		listed[key] = true
		if err == nil {
			err = l.list(ctx, key)
		}
	}
	return listed, err
}

// scanRedis lists the keys that are not listed yet.
func (l *lister) scanRedis(ctx context.Context, listed map[string]bool) error {
	step := min(max(l.rate/stepsPerSecond, 1), maxStep)
	for found, err := range l.locker.Scan(ctx, step) {
		if err != nil {
			return err
		}
		l.foreign += len(found.Foreign)
		for _, info := range found.Infos {
			if l.statuses.isGiven() != (info.State == lock.Settled) || listed[info.Key] {
				continue
			}
			if err := l.list(ctx, info.Key); err != nil {
				return err
			}
		}
		if err := l.pace(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// pace waits until so many keys more may have been looked at.
func (l *lister) pace(ctx context.Context, keys int) error {
	l.next = l.next.Add(time.Duration(keys) * time.Second / time.Duration(l.rate))
	select {
	case <-time.After(time.Until(l.next)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// list looks at a key, prints a line if it belongs into the list, and counts it.
func (l *lister) list(ctx context.Context, key string) error {
	if err := l.pace(ctx, 1); err != nil {
		return err
	}
	f, err := l.find(ctx, key)
	switch {
	case errors.Is(err, errFree):
		return nil
	case isAny(err, lock.ErrForeign, lock.ErrNotStorageKey):
		l.foreign++
		return nil
	case err != nil:
		return err
	case !l.count(&f):
		return nil
	case l.json:
		return writeJSON(l.Stdout, f.facts())
	}
	_, err = fmt.Fprintf(l.Stdout, "%-9v  %s  %s  %s\n", f.State(), printable(f.Redis.Key), f.Token(), printable(l.describe(&f)))
	return err
}

// count counts the key, and reports whether it belongs into the list.
func (l *lister) count(f *Finding) bool {
	switch {
	case l.statuses.isGiven() && f.Unreadable != nil:
		l.unreadable++
		return false
	case l.statuses.isGiven() && !l.statuses.has(f):
		return false
	case l.statuses.isGiven():
		l.stored++
	case f.State() == lock.Held:
		l.held++
	case f.State() == lock.Abandoned:
		l.abandoned++
	case f.IsUnanswered():
		l.unanswered++
	default:
		return false
	}
	return true
}

// describe says when the run ended or began, and of a lock who has it.
func (l *lister) describe(f *Finding) string {
	now := time.Now()
	if l.statuses.isGiven() {
		return fmt.Sprintf("status %d, completed %s", f.Stored.Status, moment(f.Stored.Completed, now))
	}
	began := f.Redis.ClaimedAt
	if began.IsZero() {
		began = f.Row.Began
	}
	text := fmt.Sprintf("claimed %v ago", short(now.Sub(began)))
	if f.Redis.Owner != "" {
		text += " by " + f.Redis.Owner
	}
	return text
}

// writeTotals says how many were found.
func (l *lister) writeTotals() {
	text := fmt.Sprintf("found %d held and %d abandoned keys", l.held, l.abandoned)
	switch {
	case l.statuses.isGiven():
		text = fmt.Sprintf("found %d responses", l.stored)
	case l.journal != nil:
		text += fmt.Sprintf(", and %d that are done without a response", l.unanswered)
	}
	if l.unreadable > 0 {
		text += fmt.Sprintf(", and %d that cannot be read (-keys-file)", l.unreadable)
	}
	if l.foreign > 0 {
		text += fmt.Sprintf(", and %d that another program wrote", l.foreign)
	}
	if l.journal == nil {
		text += " in Redis; a journal may have others"
	}
	fmt.Fprintln(l.Stderr, text)
}
