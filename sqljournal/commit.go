package sqljournal

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// recordingTx is a transaction that stores a run's record as its last statement.
//
// Its outcome is found within probeTime after COMMIT is sent, or it is unknown. On a silent network, Tx.Commit returns
// only when its context ends, with some drivers later. So it has a goroutine of its own. For half of the time commit waits
// for the reply. Then findEntry also asks on another connection, and takes the faster answer.
//
// Tx.Commit goes on while the outcome is unknown, until the deadline of ctx. The end of the handler does not cancel it: a
// server that waits for its standby would stop waiting, and show a transaction that a failover may lose.
type recordingTx struct {
	journal *Journal
	forRun  journal.Run
	ctx     context.Context
	opts    *sql.TxOptions
	// the COMMIT may have been sent
	commitSent bool
	// a statement has ended the transaction
	ended bool

	// ends the transaction's own context
	end context.CancelFunc
	// from now on the end of ctx does not end it
	detach func() bool
	// when commit was called
	sent time.Time
	// to the COMMIT
	reply chan commitReply
	// that is committed
	record []byte
}

type commitReply struct {
	err      error
	panicked any
}

var errNoReply = errors.New("sqljournal: no reply to COMMIT")

// run runs fn in the transaction, and stores the record that fn returns.
func (t *recordingTx) run(fn func(*sql.Tx) (journal.Commit, error)) (err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.ctx))
	if deadline, ok := t.ctx.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, deadline)
	}
	t.end, t.detach = cancel, context.AfterFunc(t.ctx, cancel)
	defer func() {
		if !t.commitSent {
			t.detach()
			t.end()
		}
	}()
	t.commitSent, err = t.journal.transaction(ctx, t.opts, func(tx *sql.Tx) error {
		commit, err := t.callAndCheck(tx, fn)
		if err != nil {
			return err
		}
		t.record = commit.Record
		return t.journal.dialect.complete(t.ctx, tx, commit)
	}, t.commit)
	if !t.commitSent {
		err = t.journal.endedByHandler(ctx, t.forRun, err) // ctx ends before it rolls back, t.ctx perhaps after
		t.ended = t.ended || errors.Is(err, errEnded)
	}
	return err
}

// callAndCheck calls fn, and finds out whether the transaction is still open, even if fn panics.
func (t *recordingTx) callAndCheck(tx *sql.Tx, fn func(*sql.Tx) (journal.Commit, error)) (commit journal.Commit, err error) {
	if t.opts == nil || !t.opts.ReadOnly {
		defer func() {
			err = t.journal.dialect.checkOpen(t.ctx, tx, t.forRun, err)
			t.ended = errors.Is(err, errEnded)
		}()
	}
	return fn(tx)
}

// commit sends COMMIT, and waits for the reply.
func (t *recordingTx) commit(tx *sql.Tx, release func(error)) error {
	t.sent, t.reply = time.Now(), make(chan commitReply, 1)
	t.detach()
	go func() {
		defer t.end()
		reply := commitReply{err: errNoReply}
		defer func() {
			reply.panicked = recover()
			t.reply <- reply
			release(reply.err)
		}()
		reply.err = tx.Commit()
	}()
	wait := time.NewTimer(t.journal.probeTime / 2)
	defer wait.Stop()
	select {
	case reply := <-t.reply:
		if reply.panicked != nil {
			panic(reply.panicked)
		}
		return reply.err
	case <-wait.C:
	case <-t.ctx.Done():
	}
	return errNoReply
}

// findEntry is Journal.findEntry (probe.go) for this transaction. It ignores sealed, because t knows whether a
// COMMIT may have been sent.
func (t *recordingTx) findEntry(run journal.Run, _ bool) (journal.Entry, error) {
	switch {
	case t.ended:
		return journal.Entry{}, errEnded
	case !t.commitSent:
		return t.journal.findEntry(t.ctx, run, false)
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(t.ctx), t.sent.Add(t.journal.probeTime))
	defer cancel()
	type outcome struct {
		entry journal.Entry
		err   error
	}
	probed := make(chan outcome, 1)
	go func() {
		e, err := t.journal.probe(ctx, run)
		probed <- outcome{e, err}
	}()
	for {
		select {
		case o := <-probed:
			if o.err == nil {
				t.end()
			}
			return o.entry, o.err
		case reply := <-t.reply:
			if reply.err == nil && reply.panicked == nil {
				return journal.Entry{State: journal.Done, Token: run.Token, Record: t.record}, nil
			}
		}
	}
}
