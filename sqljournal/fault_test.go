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

// eachServerMode runs a test on every kind of server, in both modes.
func eachServerMode(t *testing.T, test func(t *testing.T, d dbtest.Database, mode string)) {
	t.Helper()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		for mode := range modes {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				test(t, d.Server.Database(t), mode)
			})
		}
	})
}

// The statements of InTx, and of the probe by which it finds out whether it has committed.
func commits(string) dbtest.Match { return dbtest.Statement("commit") }

func completes(mode string) dbtest.Match {
	if mode == "intent" {
		return dbtest.Statement("update onceguard_journal set state = 2")
	}
	return dbtest.Statement("insert into onceguard_journal")
}

func looks(string) dbtest.Match { return dbtest.Statement("select key") }

func probeBegins(string) dbtest.Match {
	return dbtest.Statement("begin isolation level read committed")
}

func probeInserts(string) dbtest.Match {
	return dbtest.Statement("insert into onceguard_journal (key, token, state, until)")
}

// fault: a message of InTx's transaction is lost, and perhaps the next one as well. Expected: InTx succeeds exactly if the
// transaction is committed; otherwise the same transaction may be tried again.
func TestMessageIsLost(t *testing.T) {
	t.Parallel()
	type lost struct {
		by      func(*dbtest.Proxy, dbtest.Match) *dbtest.Rule
		message func(mode string) dbtest.Match
	}
	request, reply := (*dbtest.Proxy).CutBefore, (*dbtest.Proxy).DropReply
	for name, c := range map[string]struct {
		lost      []lost
		committed bool
	}{
		"reply to COMMIT":                        {[]lost{{reply, commits}}, true},
		"COMMIT":                                 {[]lost{{request, commits}}, false},
		"complete":                               {[]lost{{request, completes}}, false},
		"reply to complete":                      {[]lost{{reply, completes}}, false},
		"complete, and the look after it":        {[]lost{{request, completes}, {request, looks}}, false},
		"reply to COMMIT, and the probe's BEGIN": {[]lost{{reply, commits}, {request, probeBegins}}, true},
		"reply to COMMIT, and the probe":         {[]lost{{reply, commits}, {request, probeInserts}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
				s := newScene(t, d, mode)
				var rules []*dbtest.Rule
				for _, l := range c.lost {
					rules = append(rules, l.by(s.proxy, l.message(mode)))
				}
				err := s.pay()
				for _, rule := range rules {
					rule.Wait(t)
				}
				if !c.committed {
					s.mustHaveFailed(err)
					err = s.pay()
				}
				s.mustBeCommitted(err)
			})
		})
	}
}

// fault: a COMMIT or its reply is held, on a connection that is broken or silent. Expected: InTx waits for the COMMIT, where a
// SELECT would have seen nothing. If that takes longer than probeTime, its outcome is unknown, and a retry gets the truth.
func TestCommitIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold      func(*dbtest.Proxy, dbtest.Match) *dbtest.Rule
		pay       func(*scene) error
		meanwhile func(s *scene, commit *dbtest.Rule, leave func())
		unknown   bool
	}{
		"it arrives late":                          {(*dbtest.Proxy).Delay, (*scene).pay, liftLate, false},
		"that of Around arrives late":              {(*dbtest.Proxy).Delay, aroundProxied, liftLate, false},
		"its reply is held, and the caller leaves": {(*dbtest.Proxy).HoldReply, (*scene).pay, func(_ *scene, _ *dbtest.Rule, leave func()) { leave() }, false},
		"its reply comes before that to the probe": {(*dbtest.Proxy).HoldReply, (*scene).pay, func(s *scene, commit *dbtest.Rule, leave func()) {
			probe := s.proxy.HoldRequest(probeBegins(""))
			s.Cleanup(probe.Lift)
			leave()
			probe.Wait(s)
			commit.Lift()
		}, false},
		"it is held": {(*dbtest.Proxy).HoldRequest, (*scene).pay, func(*scene, *dbtest.Rule, func()) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
				s := newScene(t, d, mode)
				ctx, leave := context.WithCancel(s.ctx)
				defer leave()
				s.ctx = ctx
				if c.unknown {
					sqljournal.SetProbeTime(s.j, 200*time.Millisecond)
				}
				commit := c.hold(s.proxy, commits(mode))
				defer commit.Lift()
				paid := make(chan error, 1)
				go func() { paid <- c.pay(s) }()
				commit.Wait(t)
				c.meanwhile(s, commit, leave)
				err := <-paid
				if c.unknown {
					s.mustBeUnknown(err)
					commit.Lift() // it was not cancelled
					awaitState(t, s.j, s.run.Key, journal.Done)
					err = nil
				}
				s.mustBeCommitted(err)
			})
		})
	}
}

func liftLate(s *scene, commit *dbtest.Rule, _ func()) {
	s.mustStand()
	s.awaitProbe()
	commit.Lift()
}

// aroundProxied pays in a transaction that is not the journal's, through the proxy.
func aroundProxied(s *scene) error {
	through := *s
	through.db = s.d.Open(s, dbtest.Through(s.proxy))
	return aroundSQL(&through, func(err error) error { return err })
}

// awaitProbe waits until a transaction that finds out what has become of another one waits for it.
func (s *scene) awaitProbe() {
	s.Helper()
	eventually(s, "a probe that waits", func() bool { return s.d.Waiting(s, s.db) == 1 })
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
				mustBe(t, before.name, e, err, want.state, want.record)
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

// Begin does not wait for the transaction of the run that it duplicates.
func TestBeginDoesNotWait(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		s := newScene(t, d, mode)
		err := s.inTx(func(tx *sql.Tx) error {
			err := s.j.Complete(t.Context(), tx, journal.Commit{Run: s.run, Record: []byte("open"), Keep: time.Hour})
			mustFail(t, "complete", err, nil)
			want := map[string]journal.State{"transactional": absent, "intent": running}[mode]
			e, err := s.j.Begin(t.Context(), retried(s.run))
			mustBe(t, "Begin", e, err, want, "")
			return errHandler
		})
		mustFail(t, "InTx", err, errHandler)
	})
}
