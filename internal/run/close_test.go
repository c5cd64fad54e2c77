package run_test

import (
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/lock"
)

// The last tries, too, are a few at a time: a pool of connections to a database that has just recovered might otherwise open
// more than the database allows. If the database is silent, Close waits for two calls. Each run is tried once.
func TestCloseTriesAFewAtATime(t *testing.T) {
	const runs = 200
	for name, c := range map[string]struct {
		takes, most time.Duration
		atATime     int
		fails       bool
	}{
		"recovered": {10 * time.Millisecond, runs / 4 * 10 * time.Millisecond, 4, false},
		"down":      {10 * time.Millisecond, runs / 4 * 10 * time.Millisecond, 4, true},
		"silent":    {3 * time.Second, 6 * time.Second, runs, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := &outage{endFails: true, endTakes: time.Millisecond}
			inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, locker *lock.Locker) {
				for range runs {
					conclude(t, g, &product{keeps: true})
				}
				later(time.Minute)
				o.calls(c.fails)
				o.endTakes = c.takes
				start := time.Now()
				if err := locker.Close(t.Context()); err != nil {
					t.Error(err)
				}
				most, took := o.most, time.Since(start)
				ended := map[string]bool{}
				calls := o.calls(false)
				for _, e := range calls {
					ended[e.token] = true
				}
				if len(ended) != runs || len(calls) != runs || most > c.atATime || took > c.most+10*time.Millisecond {
					t.Errorf("%d of %d have ended, by %d calls, %d at a time, in %v", len(ended), runs, len(calls), most, took)
				}
			})
		})
	}
}
