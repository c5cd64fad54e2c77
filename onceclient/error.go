package onceclient

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// GaveUpError is the error of a request whose outcome is unknown: it may have been sent, and no response tells the
// outcome. (If no try had a connection, nothing was sent, and the error is another one.) It may have taken effect, and may still do so. To find out, send it again with Key, see [WithKey]: it does
// not take effect twice.
//
// Find it with errors.As. An http.Client whose Timeout is over first returns another error. So a Transport gives up
// shortly before the deadline of the request's context, which that Timeout sets.
type GaveUpError struct {
	Key      string // as it was sent, without quotes; Error does not contain it
	Attempts int    // at least 1
	Status   int    // of the response to the last try, which called for a repetition; 0 without one
	Problem  string // the type of that response's problem document, if it was read
	Err      error  // the context's error if that ended the call; else why the last try got no response; nil if it got one

	elapsed time.Duration // since the first try began
	timeout bool
}

// Error returns a text that does not contain the key, and may be logged. It includes the text of Err, which comes from
// the base.
func (e *GaveUpError) Error() string { return e.text("outcome unknown") }

// text returns the text of an error that begins by the outcome.
func (e *GaveUpError) text(outcome string) string {
	tries := "tries"
	if e.Attempts == 1 {
		tries = "try"
	}
	text := fmt.Sprintf("onceclient: %s after %d %s in %v", outcome, e.Attempts, tries, e.elapsed.Round(time.Millisecond))
	if e.Status != 0 {
		text += fmt.Sprintf(", last status %d", e.Status)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *GaveUpError) Unwrap() error { return e.Err }

// Timeout reports whether the call ended because of [WithLimit], the deadline of the context, or the timeout of a
// request that can be sent only once. url.Error.Timeout calls it.
func (e *GaveUpError) Timeout() bool { return e.timeout }

// unsentError is the error of a request of which nothing was sent. It does not wrap a GaveUpError.
type unsentError struct{ tries *GaveUpError }

func (e *unsentError) Error() string { return e.tries.text("nothing was sent") }
func (e *unsentError) Unwrap() error { return e.tries.Err }
func (e *unsentError) Timeout() bool { return e.tries.timeout }

// ended returns why ctx is done, with both its error and its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
