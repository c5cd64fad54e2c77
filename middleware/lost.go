package middleware

import (
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/lock"
)

// giveWay handles a run that lost its key to another request before any of its response was sent. It returns what the
// client gets instead of that response: what the key holds, or 409, so that two clicks never see two receipts. If the
// key is free again, giveWay settles it for this run and returns no answer: the run's own response is sent, and err is
// for the Event.
//
// Both runs may have taken effect, so the outcome is [LeaseLost] in any case, and Event.Err has this run's status.
func (c *call) giveWay(end *ending, lost error) (a answer, err error) {
	lost = fmt.Errorf("middleware: another request took the key of a run that answered %d: %w", c.running.writer.Status(), lost)
	claim, err := c.sendClaim()
	if err == nil && claim.State == lock.Granted {
		if err = c.applyEnding(claim.Lease, end); !errors.Is(err, lock.ErrLost) {
			return answer{}, errors.Join(lost, err)
		}
	}
	a = c.answerLost(claim, err)
	a.outcome, a.err = LeaseLost, errors.Join(lost, a.err)
	return a, nil
}

// answerLost returns the answer to the client of a run that lost its key, by what a new claim found.
func (c *call) answerLost(claim lock.Claim, err error) answer {
	switch {
	case errors.Is(err, lock.ErrForeign), errors.Is(err, lock.ErrSettled):
		return refuseClaim(err)
	case err != nil: // not store-unavailable, which asks for a retry: if the key was freed, that would run again
		return refuse(Unknown, &outcomeUnknown, err)
	}
	return answerAfterRun(c.answerByClaim(claim))
}

// answerAfterRun returns a, or outcome-unknown in place of an answer that the key belongs to another request: this one
// has run, so that would mislead.
func answerAfterRun(a answer) answer {
	if a.isAboutOther() {
		return refuse(Unknown, &outcomeUnknown, nil)
	}
	return a
}
