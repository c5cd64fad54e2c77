// Package run runs an operation once for each key. It knows no HTTP, apart from the texts in answers.go. A door is what protects operations of one kind:
// package middleware the handlers of HTTP requests, package once functions. A door derives the key, calls Begin, runs its
// operation if it may, and hands out what Conclude returns:
//
//	result := guard.Begin(ctx, request)      // a Run, a stored record, or the reason why there is neither
//	if result.Kind == run.InFlight {         // once the door has let go of its input
//		result = guard.Wait(ctx, request, result)
//	}
//	if result.Kind != run.Begun {
//		return answer(result)
//	}
//	r := result.Run
//	result = r.Do(func() {
//		operation(r.Start(product))      // with the context that Start returns
//		r.CutOff()                       // goroutines that the operation has left behind have no effect any more
//	}, ending, report)                       // the product of this run, or what replaces it
//
// A door never sees a lease, a claim, a journal's entry or an encoded record. The operation's product is a response or a
// value. This package sees it only as bytes, the payload of a record.
//
// # The files
//
//	guard.go       Begin: the claim, and what follows from it
//	duplicate.go   what a request gets whose key another run has; Wait
//	result.go      what Begin, Wait and Conclude return
//	answers.go     the table: what a request gets that does not run, by HTTP, in a function and by gRPC
//	run.go         a run, from Start to Conclude
//	do.go          calls the operation and concludes the run, also after a panic
//	control.go     what the operation decides about its run: Keep, Discard, Unknown, Retain
//	decide.go      the table: what a run does with its key
//	context.go     the context of the operation
//	leased.go      the protection by a lease alone; a run that has lost its key
//	journaled.go   the protection by a journal, beside a lease or alone
//	transact.go    the transaction that has effect and record
//	ask.go         how a journal is called
//	outage.go      what happens while Redis does not answer
//	resolve.go     how an operator ends a run whose outcome is unknown
//	inspect.go     what an operator sees of a key
package run
