package words

import (
	"errors"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

// OfCall returns the Event of a call of once.Do as that of a request. The words of the two are the same. What a call
// does not have is empty.
func OfCall(e *once.Event) *middleware.Event {
	return &middleware.Event{
		Outcome: e.Outcome, Key: e.Key, Err: e.Err, Size: e.Size, Age: e.Age, Pending: errors.Is(e.Err, lock.ErrPending),
		Claim: e.Claim, Wait: e.Wait, Journal: e.Journal,
		Handler: e.Run, Settle: e.Settle,
	}
}
