package middleware

import (
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/lock"
)

// reclaimOrGiveWay handles a run that lost its key before any of its response was sent: another request, an operator or
// another program has written the key. By now the key may be free again, and the next retry would run. So
// reclaimOrGiveWay claims the key again.
//
//   - If the claim is granted, and the key is not lost again, it applies the run's ending and returns no answer. The
//     client gets the run's own response, and err is for the Event.
//   - Otherwise the run gives way: it returns the answer that replaces its response, which is what the key holds, or a
//     problem. So the client does not get a response that differs from the stored one.
//
// Both runs may have taken effect, so the outcome is [LeaseLost] in any case, and the text of Event.Err has this run's
// status.
func (c *call) reclaimOrGiveWay(end *ending, lost error) (replacement *answer, err error) {
	lost = fmt.Errorf("middleware: a run that answered %d has lost its key: %w", c.running.writer.Status(), lost)
	claim, err := c.sendClaim()
	if err == nil && claim.State == lock.Granted {
		err = c.applyEnding(claim.Lease, end)
		if !errors.Is(err, lock.ErrLost) {
			return nil, errors.Join(lost, err)
		}
	}
	return answerAfterRun(c.answerLost(&claim, err), lost), nil // err is ErrLost if the key was lost a second time
}

// answerLost returns the answer to the client of a run that lost its key, by what its second claim has returned.
func (c *call) answerLost(claim *lock.Claim, err error) *answer {
	switch {
	case errors.Is(err, lock.ErrForeign), errors.Is(err, lock.ErrSettled):
		return refuseClaim(err)
	case err != nil: // not store-unavailable, which invites a retry: it would run again if the key is free
		return refuse(Unknown, &outcomeUnknown, err)
	}
	return c.answerByClaim(claim)
}

// answerAfterRun returns the answer to a run that lost its key. usual is what a duplicate would get. If usual says that
// the key belongs to another request, the answer is outcome-unknown: this request has run, so usual would mislead.
func answerAfterRun(usual *answer, lost error) *answer {
	after := *usual
	if usual.isMismatch() {
		after.problem = &outcomeUnknown
	}
	after.outcome, after.err = LeaseLost, errors.Join(lost, usual.err)
	return &after
}
