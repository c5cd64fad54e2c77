package run

import "errors"

// Why a run was interrupted. The value of the panic is left out: it may hold what must not be logged.
var (
	ErrNoReturn     = errors.New("onceguard: the operation panicked, or called runtime.Goexit")
	errNotConcluded = errors.New("onceguard: a codec, the function of WithStored or WithTraceparent, a journal or a hook of " +
		"the Redis client panicked, or called runtime.Goexit")
)

// Do calls operation, which calls Start and CutOff, and concludes the run with what ending returns. After a panic or a
// runtime.Goexit, which propagates, it aborts the product, concludes the run as interrupted, and calls report with the
// result for the observer, even if a journal panics once more.
func (r *Run) Do(operation func(), ending func() Ending, report func(Result)) (result Result) {
	why, returned := ErrNoReturn, false
	defer func() {
		if !returned {
			r.interrupt(why, report)
		}
	}()
	operation()
	why = errNotConcluded // what panics from now on is not the operation
	result = r.Conclude(ending())
	returned = true
	return result
}

// interrupt is what Do does after a panic.
func (r *Run) interrupt(why error, report func(Result)) {
	interrupted := Result{Outcome: OutcomePanicked, Err: why}
	defer func() { report(interrupted) }()
	r.CutOff()
	r.product.Abort()
	result := r.Conclude(Ending{How: Interrupted, Err: why})
	if result.Kind != Own { // the client gets nothing of it
		result.Err = errors.Join(why, result.Err)
		if result.Outcome != OutcomeLeaseLost {
			result.Outcome = OutcomePanicked
		}
	}
	interrupted = result
}
