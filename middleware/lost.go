package middleware

import (
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/lock"
)

// giveWay handles a run whose key another request has taken before a byte of its response has left. That request now
// answers for the key, so that two clicks never see two receipts: giveWay looks at the key, and answers with the response
// that it holds, or with 409. If the key is free again, giveWay settles it for this run, whose own response may go out.
//
// The run may be a second effect. So its event is [LeaseLost] whatever the client gets, and Event.Err has its status.
func (c *call) giveWay(e ending, lost error) (answered bool, err error) {
	lost = fmt.Errorf("middleware: another request took the key of a run that answered %d: %w", c.rec.status, lost)
	claim, err := c.ask()
	if err == nil && claim.State == lock.Granted {
		if err = c.settle(claim.Lease, e); !errors.Is(err, lock.ErrLost) {
			return false, errors.Join(lost, err)
		}
	}
	c.lost = lost
	c.rec.drain()
	c.rec.takeBack()
	switch {
	case errors.Is(err, lock.ErrForeign):
		c.refuse(Unreadable, recordUnreadable, err)
	case errors.Is(err, lock.ErrSettled):
		c.refuse(StoreUnavailable, responseUnconfirmed, err)
	case err != nil: // another has the key, or had it a moment ago: a retry finds out
		c.refuse(InFlight, inFlight, err)
	case claim.State == lock.Settled:
		c.replay(claim.Value)
	case claim.State == lock.Abandoned:
		c.meetAbandoned(claim.Note)
	default:
		c.meet(claim.Note, InFlight, c.inFlightSince(claim.ClaimedAt))
	}
	return true, nil
}
