package middleware

import (
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/lock"
)

// giveWay handles a run whose key another request has taken before a byte of its response has left. That request now
// answers for the key, so that two clicks never see two receipts: giveWay looks at the key, and returns the answer that it
// holds, or 409. If the key is free again, giveWay settles it for this run, whose own response may go out: then there is
// no answer, and err is the Event's.
//
// The run may be a second effect. So its outcome is [LeaseLost] whatever the client gets, and Event.Err has its status.
func (c *call) giveWay(end *ending, lost error) (a answer, err error) {
	lost = fmt.Errorf("middleware: another request took the key of a run that answered %d: %w", c.running.writer.Status(), lost)
	claim, err := c.ask()
	if err == nil && claim.State == lock.Granted {
		if err = c.settle(claim.Lease, end); !errors.Is(err, lock.ErrLost) {
			return answer{}, errors.Join(lost, err)
		}
	}
	a = c.answerLost(claim, err)
	a.outcome, a.err = LeaseLost, errors.Join(lost, a.err)
	return a, nil
}

// answerLost answers for a run that has lost its key by what that holds.
func (c *call) answerLost(claim lock.Claim, err error) answer {
	switch {
	case errors.Is(err, lock.ErrForeign), errors.Is(err, lock.ErrSettled):
		return refuseClaim(err)
	case err != nil: // another has the key, or had it a moment ago, and may have freed it: a retry could run again
		return refusal(Unknown, outcomeUnknown, err)
	}
	a := c.answerBy(claim)
	if a.outcome == Reused || a.outcome == FingerprintChanged { // not this run's own request, which has happened
		return refusal(Unknown, outcomeUnknown, nil)
	}
	return a
}
