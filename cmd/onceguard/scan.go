package main

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

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
type tally struct{ looked, held, abandoned, foreign int }

func prepareScan(_ environment, c *config) (action, error) {
	if c.rate < 1 || c.rate > maxRate {
		return nil, usagef("-rate: %d is not from 1 to %d", c.rate, maxRate)
	}
	return scan, nil
}

// scan lists the held and abandoned keys of the namespace.
func scan(ctx context.Context, s *session) error {
	step := min(max(s.rate/stepsPerSecond, 1), maxStep)
	pace := time.NewTicker(time.Duration(step) * time.Second / time.Duration(s.rate))
	defer pace.Stop()
	p := s.newProgress(ctx)
	defer p.clear()
	var t tally
	for found, err := range s.locker.Scan(ctx, step) {
		if err != nil {
			return err
		}
		t.looked += step
		if err := s.list(found, &t, p); err != nil {
			return err
		}
		p.show(t)
		select {
		case <-pace.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.clear()
	fmt.Fprintf(s.stderr, "found %d held and %d abandoned keys", t.held, t.abandoned)
	if t.foreign > 0 {
		fmt.Fprintf(s.stderr, ", and %d keys that hold what onceguard did not write", t.foreign)
	}
	fmt.Fprintln(s.stderr)
	return nil
}

// list prints the held and abandoned keys of a step, and counts them.
func (s *session) list(found lock.Scanned, t *tally, p *progress) error {
	t.foreign += len(found.Foreign)
	for _, info := range found.Infos {
		switch info.State {
		case lock.Held:
			t.held++
		case lock.Abandoned:
			t.abandoned++
		default:
			continue
		}
		p.clear()
		if s.json {
			if err := writeJSON(s.stdout, newFacts(info)); err != nil {
				return err
			}
			continue
		}
		ago := short(time.Since(info.ClaimedAt))
		_, err := fmt.Fprintf(s.stdout, "%-9v  %s  %s  claimed %v ago\n", info.State, printable(info.Key), info.Token, ago)
		if err != nil {
			return err
		}
	}
	return nil
}

// progress is a line on a terminal. A nil *progress shows nothing.
type progress struct {
	session *session
	total   int64 // keys on all servers, 0 if that is not known
	last    time.Time
	shown   bool
}

// newProgress returns nil if the standard error is not a terminal.
func (s *session) newProgress(ctx context.Context) *progress {
	if !s.terminal {
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
	fmt.Fprintf(p.session.stderr, "looked at %d%s keys, found %d held and %d abandoned", t.looked, of, t.held, t.abandoned)
	p.last, p.shown = time.Now(), true
}

// clear removes the line, so that other output can follow.
func (p *progress) clear() {
	if p != nil && p.shown {
		fmt.Fprint(p.session.stderr, "\r\x1b[K")
		p.shown = false
	}
}
