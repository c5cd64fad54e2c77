package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func scanFlags(set *flag.FlagSet, c *config) {
	set.Var(&c.statuses, "status", "list the responses that are stored with this `status` instead, such as 503 or 500-599")
	set.IntVar(&c.rate, "rate", 1000, "`keys` to look at in a second, on all servers together")
}

const (
	stepsPerSecond = 10
	maxStep        = 1000 // keys in a step, which lock.Scan limits
	maxRate        = 1_000_000
)

// tally counts what a scan has found.
type tally struct{ held, abandoned, unanswered, stored, unreadable, foreign int }

func prepareScan(_ Environment, c *config) (action, error) {
	if c.rate < 1 || c.rate > maxRate {
		return nil, usagef("-rate: %d is not from 1 to %d", c.rate, maxRate)
	}
	return scan, nil
}

// scan lists the held and abandoned keys of the namespace, and the rows that are done without a response; or, with statuses,
// what is stored with these.
func scan(ctx context.Context, s *session) error {
	var t tally
	pace := newPace(s.rate)
	defer pace.Stop()
	listed, err := s.scanJournal(ctx, &t, pace)
	if err != nil {
		return err
	}
	if !s.locker.IsNone() {
		if err := s.scanRedis(ctx, listed, &t, pace); err != nil {
			return err
		}
	}
	s.writeTally(&t)
	return nil
}

// writeTally says how many were found.
func (s *session) writeTally(t *tally) {
	switch {
	case s.statuses.isGiven():
		fmt.Fprintf(s.Stderr, "found %d responses", t.stored)
	case s.journal != nil:
		fmt.Fprintf(s.Stderr, "found %d held and %d abandoned keys, and %d that are done without a response", t.held, t.abandoned, t.unanswered)
	default:
		fmt.Fprintf(s.Stderr, "found %d held and %d abandoned keys", t.held, t.abandoned)
	}
	if t.unreadable > 0 {
		fmt.Fprintf(s.Stderr, ", and %d that cannot be read (-keys-file)", t.unreadable)
	}
	if t.foreign > 0 {
		fmt.Fprintf(s.Stderr, ", and %d that another program wrote", t.foreign)
	}
	if s.journal == nil {
		fmt.Fprint(s.Stderr, " in Redis; a journal may have others")
	}
	fmt.Fprintln(s.Stderr)
}

// pace bounds the keys that are looked at in a second.
type pace struct {
	*time.Ticker
	step, looked int // keys between two ticks; since the last one
}

func newPace(rate int) *pace {
	step := min(max(rate/stepsPerSecond, 1), maxStep)
	return &pace{Ticker: time.NewTicker(time.Duration(step) * time.Second / time.Duration(rate)), step: step}
}

// wait waits once for each step of the keys that were looked at.
func (p *pace) wait(ctx context.Context, keys int) error {
	for p.looked += keys; p.looked >= p.step; p.looked -= p.step {
		select {
		case <-p.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// scanRedis lists the keys that only Redis has.
func (s *session) scanRedis(ctx context.Context, listed map[string]bool, t *tally, pace *pace) error {
	for found, err := range s.locker.Scan(ctx, pace.step) {
		if err != nil {
			return err
		}
		if err := s.listFound(ctx, found, listed, t, pace); err != nil {
			return err
		}
		if err := pace.wait(ctx, pace.step); err != nil {
			return err
		}
	}
	return nil
}

// scanJournal lists the rows of the journal, and returns their keys.
func (s *session) scanJournal(ctx context.Context, t *tally, pace *pace) (listed map[string]bool, err error) {
	if s.journal == nil {
		return nil, nil
	}
	rows, err := s.findRows(ctx)
	if err != nil {
		return nil, err
	}
	listed = make(map[string]bool, len(rows))
	for _, row := range rows {
		listed[row.Key] = true
		if s.statuses.isGiven() {
			if err := s.listStored(ctx, row.Key, t, pace); err != nil {
				return nil, err
			}
			continue
		}
		info, err := run.InspectRedis(ctx, s.locker, row.Key)
		switch {
		case errors.Is(err, lock.ErrForeign) || errors.Is(err, lock.ErrNotStorageKey):
			info = lock.Info{Key: row.Key, State: lock.Free}
		case err != nil:
			return nil, err
		}
		if err := pace.wait(ctx, 1); err != nil {
			return nil, err
		}
		if err := s.list(info, row, t); err != nil {
			return nil, err
		}
	}
	return listed, nil
}

// listStored prints a line for a key with a response of one of the statuses, and counts it.
func (s *session) listStored(ctx context.Context, key string, t *tally, pace *pace) error {
	if err := pace.wait(ctx, 1); err != nil {
		return err
	}
	seen, err := s.once.Inspect(ctx, key)
	switch {
	case errors.Is(err, middleware.ErrUnreadable):
		t.unreadable++
		return nil
	case errors.Is(err, lock.ErrForeign) || errors.Is(err, lock.ErrNotStorageKey):
		t.foreign++
		return nil
	case err != nil || !s.statuses.Has(seen):
		return err
	}
	f, err := s.read(ctx, key) // the token is read before the status, so that it never names a later response
	if errors.Is(err, errFree) || err == nil && !s.statuses.Has(f.Inspection) {
		return nil
	}
	if err != nil {
		return err
	}
	t.stored++
	if s.json {
		return writeJSON(s.Stdout, s.newFacts(&f))
	}
	_, err = fmt.Fprintf(s.Stdout, "%-9v  %s  %s  status %d, completed %s\n",
		f.State(), printable(f.Redis.Key), tokenOf(&f), f.Stored.Status, moment(f.Stored.Completed, time.Now()))
	return err
}

// findRows returns the journal's rows that are to be listed.
func (s *session) findRows(ctx context.Context) ([]Row, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.journal.Rows(ctx, s.statuses.isGiven())
}

// listFound lists the held and abandoned keys of a step, without those that are listed already, or that have an outcome
// in the journal.
func (s *session) listFound(ctx context.Context, found lock.Scanned, listed map[string]bool, t *tally, pace *pace) error {
	t.foreign += len(found.Foreign)
	for _, info := range found.Infos {
		if s.statuses.isGiven() != (info.State == lock.Settled) || listed[info.Key] {
			continue
		}
		if s.statuses.isGiven() {
			if err := s.listStored(ctx, info.Key, t, pace); err != nil {
				return err
			}
			continue
		}
		row, err := s.findRow(ctx, info.Key)
		if err != nil {
			return err
		}
		if err := s.list(info, row, t); err != nil {
			return err
		}
	}
	return nil
}

// list prints a line, and counts it.
func (s *session) list(info lock.Info, row Row, t *tally) error {
	f := s.newFinding(info, row)
	switch state := f.State(); {
	case state == lock.Held:
		t.held++
	case state == lock.Abandoned:
		t.abandoned++
	case info.State != lock.Settled && row.State == journal.Done && !row.Response:
		t.unanswered++
	default:
		return nil
	}
	if s.json {
		return writeJSON(s.Stdout, s.newFacts(&f))
	}
	claimed := info.ClaimedAt
	if claimed.IsZero() {
		claimed = row.Began
	}
	by := ""
	if info.Owner != "" {
		by = " by " + printable(info.Owner)
	}
	ago := short(time.Since(claimed))
	_, err := fmt.Fprintf(s.Stdout, "%-9v  %s  %s  claimed %v ago%s\n", f.State(), printable(info.Key), tokenOf(&f), ago, by)
	return err
}
