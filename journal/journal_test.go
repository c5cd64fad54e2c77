package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/onceguard/onceguard/internal/inrun"
	"github.com/onceguard/onceguard/journal"
)

// door is the run of a door that has a journal.
type door struct {
	run journal.Run
	of  journal.Journal
	err error // of Transact
}

func (d *door) Journaled() (journal.Run, journal.Journal) { return d.run, d.of }

func (d *door) Transact(
	do func(func() (journal.Commit, error)) error, _ func(journal.Run, bool) (journal.Entry, error),
) error {
	return errors.Join(d.err, do(func() (journal.Commit, error) { return journal.Commit{Run: d.run}, nil }))
}

// inRun returns a context of a run; run is nil if it has no journal.
func inRun(ctx context.Context, run any) context.Context {
	return context.WithValue(ctx, inrun.Key{}, run)
}

// table is a journal that is only compared.
type table struct{ journal.Journal }

func TestContext(t *testing.T) {
	t.Parallel()
	outer := &door{run: journal.Run{Key: "outer"}, of: &table{}}
	inner := &door{run: journal.Run{Key: "inner"}, of: &table{}}
	inOuter := inRun(t.Context(), outer)
	for name, c := range map[string]struct {
		ctx  context.Context
		want *door
	}{
		"outside of a run":                  {t.Context(), nil},
		"in a run":                          {context.WithoutCancel(inOuter), outer},
		"in a run inside of another":        {inRun(inOuter, inner), inner},
		"in a run without a journal inside": {inRun(inOuter, nil), nil},
	} {
		run, of, ok := journal.FromContext(c.ctx)
		switch {
		case ok != (c.want != nil):
			t.Errorf("%s: ok is %t", name, ok)
		case ok && (run.Key != c.want.run.Key || of != c.want.of):
			t.Errorf("%s: got %q, want %q", name, run.Key, c.want.run.Key)
		case !ok && (run.Key != "" || of != nil):
			t.Errorf("%s: got %q, %v", name, run.Key, of)
		}
	}
}

func TestTransact(t *testing.T) {
	t.Parallel()
	errDoor, errDo := errors.New("the door's"), errors.New("the operation's")
	d := &door{run: journal.Run{Key: "key"}, err: errDoor}
	err := journal.Transact(inRun(t.Context(), d), func(seal func() (journal.Commit, error)) error {
		commit, err := seal()
		if commit.Run.Key != "key" || err != nil {
			t.Errorf("seal: %q, %v", commit.Run.Key, err)
		}
		return errDo
	}, nil)
	if !errors.Is(err, errDoor) || !errors.Is(err, errDo) {
		t.Errorf("got %v, want both errors", err)
	}
	defer func() {
		if got := recover(); got != "journal.Transact: the context belongs to no run with a journal" {
			t.Errorf("outside of a run: panic %v", got)
		}
	}()
	_ = journal.Transact(t.Context(), nil, nil)
}

func TestState(t *testing.T) {
	t.Parallel()
	got := fmt.Sprint(journal.Absent, journal.Begun, journal.Running, journal.Unfinished, journal.Done, journal.State(9))
	if want := "absent begun running unfinished done State(9)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
