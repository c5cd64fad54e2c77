package sqljournal_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// The function of a sweep, the late run and an operator end the same row at the same time. One of their outcomes stands, and
// only that one was told that it does.
func TestOneOfThemEndsTheRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for range 20 {
			h := handOut(t, d)
			operator := h.run
			operator.Resolved = true
			end := func(run journal.Run, record string) func() (string, error) {
				return func() (string, error) {
					e, err := h.j.End(t.Context(), run, []byte(record), time.Hour)
					return string(e.Record), err
				}
			}
			var mu sync.Mutex
			told := map[string]string{} // what each was told to stand
			var ending sync.WaitGroup
			for name, end := range map[string]func() (string, error){
				"sweep": func() (string, error) {
					return "sweep", h.u.Done(t.Context(), h.db, time.Hour, []byte("sweep"))
				},
				"run":      end(h.run, "run"),
				"operator": end(operator, "operator"),
				"another sweep": func() (string, error) {
					_, err := h.j.Sweep(t.Context(), 0, time.Hour, func(context.Context, sqljournal.Unfinished) error {
						t.Error("the row was handed out twice")
						return nil
					})
					return "", err
				},
			} {
				ending.Go(func() {
					record, err := end()
					if err != nil && !errors.Is(err, sqljournal.ErrLost) && !errors.Is(err, journal.ErrHandedOut) {
						t.Errorf("%s: %v", name, err)
					}
					mu.Lock()
					defer mu.Unlock()
					if err == nil && record != "" {
						told[name] = record
					}
				})
			}
			ending.Wait()
			e, err := h.j.Look(t.Context(), h.run.Key)
			if err != nil || e.State != journal.Done || e.Token != h.run.Token || told[string(e.Record)] != string(e.Record) {
				t.Errorf("%v %q stands, %v; they were told %q", e.State, e.Record, err, told)
			}
			for name, record := range told {
				if record != string(e.Record) {
					t.Errorf("%s was told that %q stands, and %q does", name, record, e.Record)
				}
			}
		}
	})
}
