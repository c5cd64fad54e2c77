package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/finding"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

func scanFlags(set *flag.FlagSet, c *config) {
	set.IntVar(&c.rate, "rate", 1000, "`keys` to look at in a second, on all servers together")
}

const (
	stepsPerSecond = 10
	maxStep        = 1000 // keys in a step, which lock.Scan limits
	maxRate        = 1_000_000
	progressEvery  = 500 * time.Millisecond
)

// tally counts what a scan has found.
type tally struct{ looked, held, abandoned, unanswered, foreign int }

func prepareScan(_ Environment, c *config) (action, error) {
	if c.rate < 1 || c.rate > maxRate {
		return nil, usagef("-rate: %d is not from 1 to %d", c.rate, maxRate)
	}
	return scan, nil
}

// scan lists the held and abandoned keys of the namespace, and the rows that are done without a response.
func scan(ctx context.Context, s *session) error {
	p := s.newProgress(ctx)
	defer p.clear()
	var t tally
	pace := newPace(s.rate)
	defer pace.Stop()
	listed, err := s.scanJournal(ctx, &t, pace)
	if err != nil {
		return err
	}
	if !s.locker.IsNone() {
		if err := s.scanRedis(ctx, listed, &t, p, pace); err != nil {
			return err
		}
	}
	p.clear()
	s.writeTally(&t)
	return nil
}

// writeTally says how many were found.
func (s *session) writeTally(t *tally) {
	fmt.Fprintf(s.Stderr, "found %d held and %d abandoned keys", t.held, t.abandoned)
	if s.journal != nil {
		fmt.Fprintf(s.Stderr, ", and %d that are done without a response", t.unanswered)
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
func (s *session) scanRedis(ctx context.Context, listed map[string]bool, t *tally, p *progress, pace *pace) error {
	for found, err := range s.locker.Scan(ctx, pace.step) {
		if err != nil {
			return err
		}
		t.looked += pace.step
		if err := s.listFound(ctx, found, listed, t, p); err != nil {
			return err
		}
		p.show(*t)
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
		listed[row.Key] = true
		if err := s.list(info, row, t); err != nil {
			return nil, err
		}
	}
	return listed, nil
}

// findRows returns the journal's rows that have no response.
func (s *session) findRows(ctx context.Context) ([]Row, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.journal.Rows(ctx)
}

// listFound lists the held and abandoned keys of a step, without those that are listed already, or that have an outcome
// in the journal.
func (s *session) listFound(ctx context.Context, found lock.Scanned, listed map[string]bool, t *tally, p *progress) error {
	t.foreign += len(found.Foreign)
	for _, info := range found.Infos {
		if info.State == lock.Settled || listed[info.Key] {
			continue
		}
		row, err := s.findRow(ctx, info.Key)
		if err != nil {
			return err
		}
		p.clear()
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
	ago := finding.Short(time.Since(claimed))
	_, err := fmt.Fprintf(s.Stdout, "%-9v  %s  %s  claimed %v ago%s\n", f.State(), printable(info.Key), tokenOf(&f), ago, by)
	return err
}

// progress is a line on a terminal. A nil *progress shows nothing.
type progress struct {
	session *session
	total   int64 // keys on all servers, 0 if that is not known
	last    time.Time
	shown   bool
}

// newProgress returns nil if the standard error is not a terminal, and without Redis.
func (s *session) newProgress(ctx context.Context) *progress {
	if !s.Terminal || s.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return &progress{session: s, total: countKeys(ctx, s.client)}
}

// countKeys returns how many keys all servers have, or 0 if one of them does not answer.
func countKeys(ctx context.Context, client redis.UniversalClient) int64 {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return client.DBSize(ctx).Val()
	}
	var total atomic.Int64
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		n, err := node.DBSize(ctx).Result()
		total.Add(n)
		return err
	})
	if err != nil {
		return 0
	}
	return total.Load()
}

// show writes the line, if the last one was written a while ago.
func (p *progress) show(t tally) {
	if p == nil || time.Since(p.last) < progressEvery {
		return
	}
	p.clear()
	of := ""
	if p.total > 0 {
		t.looked = int(min(int64(t.looked), p.total))
		of = fmt.Sprintf(" of %d", p.total)
	}
	fmt.Fprintf(p.session.Stderr, "looked at %d%s keys, found %d held and %d abandoned", t.looked, of, t.held, t.abandoned)
	p.last, p.shown = time.Now(), true
}

// clear removes the line, so that other output can follow.
func (p *progress) clear() {
	if p != nil && p.shown {
		fmt.Fprint(p.session.Stderr, "\r\x1b[K")
		p.shown = false
	}
}
