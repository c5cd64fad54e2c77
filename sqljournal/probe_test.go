package sqljournal_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// faulty is a journal whose connections go through a proxy, and a run that has begun.
type faulty struct {
	proxy *dbtest.Proxy
	j     *sqljournal.Journal
	db    *sql.DB // not through the proxy
	d     dbtest.Database
	run   journal.Run
	x     *fakeExecution
	ctx   context.Context
}

func newFaulty(t *testing.T, d dbtest.Database, mode string) *faulty {
	t.Helper()
	f := &faulty{proxy: dbtest.NewProxy(t, d.Server()), db: withEffects(t, d), d: d}
	f.j = modes[mode](d, t, dbtest.Through(f.proxy))
	f.run = begin(t, f.j, newRun(time.Hour))
	f.x, f.ctx = protected(f.j, f.run, "response")
	return f
}

// pay runs the handler's transaction.
func (f *faulty) pay() error {
	return f.j.InTx(f.ctx, nil, func(tx *sql.Tx) error { return take(tx, f.run) })
}

// mustBeCommitted checks that InTx has succeeded, and rightly so.
func (f *faulty) mustBeCommitted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("InTx: %v", err)
	}
	mustHaveEffects(t, f.db, f.run, 1)
	mustLook(t, f.j, f.run.Key, journal.Done, "response")
}

// completes matches the statement by which InTx stores the record.
func completes(mode string) dbtest.Match {
	if mode == "intent" {
		return dbtest.Statement("update onceguard_journal set state = 2")
	}
	return dbtest.Statement("insert into onceguard_journal")
}

// awaitProbe waits until a transaction that finds out what has become of another one waits for it.
func (f *faulty) awaitProbe(t *testing.T) {
	t.Helper()
	eventually(t, "a probe that waits", func() bool { return f.d.Waiting(t, f.db) == 1 })
}

// eachServerMode runs a test on every kind of server, in both modes.
func eachServerMode(t *testing.T, test func(t *testing.T, d dbtest.Database, mode string)) {
	t.Helper()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		for mode := range modes {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				test(t, d.Server().Database(t), mode)
			})
		}
	})
}

// fault: the reply to COMMIT is lost. The transaction is committed, and InTx says so.
func TestReplyToCommitIsLost(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, d, mode)
		lost := f.proxy.DropReply(dbtest.Statement("commit"))
		err := f.pay()
		lost.Wait(t)
		f.mustBeCommitted(t, err)
		if f.x.asked != 1 {
			t.Errorf("the truth was asked for %d times, want once", f.x.asked)
		}
	})
}

// fault: COMMIT never reaches the server. Nothing has happened, and the same transaction may be tried again.
func TestCommitIsLost(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, d, mode)
		lost := f.proxy.CutBefore(dbtest.Statement("commit"))
		err := f.pay()
		lost.Wait(t)
		if err == nil || err == journal.ErrAnswered {
			t.Errorf("InTx: got error %v, want the connection's", err)
		}
		mustStand(t, f.j, f.db, f.run)
		f.mustBeCommitted(t, f.pay())
	})
}

// fault: COMMIT reaches the server after its connection broke. InTx waits for it, where a SELECT would have seen nothing.
func TestCommitArrivesLate(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, d, mode)
		late := f.proxy.Delay(dbtest.Statement("commit"))
		paid := make(chan error, 1)
		go func() { paid <- f.pay() }()
		late.Wait(t)
		mustStand(t, f.j, f.db, f.run)
		f.awaitProbe(t)
		select {
		case err := <-paid:
			t.Errorf("InTx does not wait: %v", err)
		default:
		}
		late.Lift()
		f.mustBeCommitted(t, <-paid)
	})
}

// fault: COMMIT neither arrives nor fails for longer than InTx waits. It is not known whether it takes effect.
func TestCommitIsTooLate(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, d, mode)
		sqljournal.SetProbeTime(f.j, sqljournal.ProbeTime)
		late := f.proxy.Delay(dbtest.Statement("commit"))
		start := time.Now()
		mustFail(t, "InTx", f.pay(), journal.ErrAnswered)
		if took := time.Since(start); took < 2900*time.Millisecond || took > 10*time.Second {
			t.Errorf("it took %v, want 3 s", took)
		}
		if !f.x.unknown {
			t.Error("it is said to be known what happened")
		}
		late.Lift()
		awaitState(t, f.j, f.run.Key, journal.Done) // a retry gets the truth
		mustHaveEffects(t, f.db, f.run, 1)
	})
}

// fault: the network is silent after COMMIT was sent, so that Tx.Commit would return only at the run's limit. The
// goroutine that waits for it ends with the test's connections: see TestMain.
func TestCommitIntoSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commit    func(*dbtest.Proxy, dbtest.Match) *dbtest.Rule // holds it
		probeTime time.Duration
		lifted    bool // when another connection asks, which gets no answer
		want      error
	}{
		"request is held":           {(*dbtest.Proxy).HoldRequest, sqljournal.ProbeTime, false, journal.ErrAnswered},
		"reply is held":             {(*dbtest.Proxy).HoldReply, sqljournal.ProbeTime, false, nil},
		"reply is held for a while": {(*dbtest.Proxy).HoldReply, 6 * sqljournal.ProbeTime, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
				f := newFaulty(t, d, mode)
				sqljournal.SetProbeTime(f.j, c.probeTime)
				ctx, cancel := context.WithTimeout(f.ctx, time.Hour)
				defer cancel()
				f.ctx = ctx
				commit := c.commit(f.proxy, dbtest.Statement("commit"))
				defer commit.Lift()
				paid := make(chan error, 1)
				go func() { paid <- f.pay() }()
				commit.Wait(t)
				start := time.Now()
				if c.lifted {
					probe := f.proxy.HoldRequest(dbtest.Statement("begin isolation level read committed"))
					defer probe.Lift()
					probe.Wait(t)
					commit.Lift()
				}
				err := <-paid
				if took := time.Since(start); took > c.probeTime+10*time.Second {
					t.Errorf("it took %v, want %v at most", took, c.probeTime)
				}
				if c.want == nil {
					f.mustBeCommitted(t, err)
					return
				}
				mustFail(t, "InTx", err, c.want)
				if !f.x.unknown {
					t.Error("it is said to be known what happened")
				}
				commit.Lift() // the COMMIT was not cancelled
				awaitState(t, f.j, f.run.Key, journal.Done)
				mustHaveEffects(t, f.db, f.run, 1)
			})
		})
	}
}

// fault: what stores the record is lost, or its reply is. No COMMIT was sent, so nothing has happened.
func TestCompleteIsLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*dbtest.Proxy, dbtest.Match) *dbtest.Rule{
		"request": (*dbtest.Proxy).CutBefore,
		"reply":   (*dbtest.Proxy).DropReply,
	} {
		t.Run(name, func(t *testing.T) {
			eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
				f := newFaulty(t, d, mode)
				lost := fault(f.proxy, completes(mode))
				err := f.pay()
				lost.Wait(t)
				if err == nil || err == journal.ErrAnswered {
					t.Errorf("InTx: got error %v, want the connection's", err)
				}
				mustStand(t, f.j, f.db, f.run)
				f.mustBeCommitted(t, f.pay())
			})
		})
	}
}

// fault: the database goes away before COMMIT, and cannot be asked. It is certain all the same that nothing has happened.
func TestLookAfterAFailureFails(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, d, mode)
		f.proxy.CutBefore(completes(mode))
		looks := f.proxy.CutBefore(dbtest.Statement("select key"))
		err := f.pay()
		looks.Wait(t)
		if err == nil || err == journal.ErrAnswered {
			t.Errorf("InTx: got error %v, want the connection's", err)
		}
		mustStand(t, f.j, f.db, f.run)
		f.mustBeCommitted(t, f.pay())
	})
}

// fault: the first connection on which InTx asks what has become of a COMMIT breaks as well. It asks again.
func TestProbeFailsOnce(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		for _, statement := range []string{"begin isolation level read committed", "insert into onceguard_journal (key, token, state, until)"} {
			f := newFaulty(t, d.Server().Database(t), mode)
			f.proxy.DropReply(dbtest.Statement("commit"))
			fails := f.proxy.CutBefore(dbtest.Statement(statement))
			err := f.pay()
			fails.Wait(t)
			f.mustBeCommitted(t, err)
		}
	})
}

// fault: the caller's context ends while COMMIT is under way.
func TestContextEndsDuringCommit(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, d, mode)
		held := f.proxy.HoldReply(dbtest.Statement("commit"))
		defer held.Lift()
		ctx, cancel := context.WithCancel(f.ctx)
		f.ctx = ctx
		paid := make(chan error, 1)
		go func() { paid <- f.pay() }()
		held.Wait(t)
		cancel()
		f.mustBeCommitted(t, <-paid)
	})
}

// A run whose outcome is asked for finds another run's, or nothing, without waiting, and leaves nothing behind.
func TestFindOutcome(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		j, db := modes[mode](d, t), d.Open(t)
		for before, want := range map[standing]answer{
			nothing: {absent, ""}, ownBegun: {begun, ""}, ownDone: {done, "stored"}, othersRunning: {running, ""},
			othersUnfished: {unfinished, ""}, othersDone: {done, "stored"}, othersExpired: {absent, ""},
		} {
			run := newRun(time.Hour)
			before.put(t, d, db, run)
			for _, sent := range []bool{false, true} {
				e, err := j.FindEntry(t.Context(), run, sent)
				mustBe(t, string(before), e, err, want.state, want.record)
			}
			if before == nothing {
				mustLook(t, j, run.Key, absent, "")
			}
		}
		run := newRun(time.Hour)
		ownExpired.put(t, d, db, run)
		e, err := j.FindEntry(t.Context(), run, true)
		if err != nil || e.State != done || e.Left != 0 {
			t.Errorf("its own record that has expired already: got %v, %v left, %v", e.State, e.Left, err)
		}
	})
}
