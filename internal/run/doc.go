// Package run is the life of one key: of an HTTP request, of a function, of a message. It knows no HTTP. A
// door (package middleware, package once) derives the key, asks Begin, runs its operation if it is told to, and hands
// out what Conclude returns:
//
//	result := guard.Begin(ctx, request)      // a Run, a stored record, or the reason why there is neither
//	if result.Kind == run.InFlight {         // once the door has let go of its input
//		result = guard.Wait(ctx, request, result)
//	}
//	if result.Kind != run.Begun {
//		return answer(result)
//	}
//	r := result.Run
//	operation(r.Start(ctx, product))         // with the context that the operation gets
//	r.CutOff()                               // what the operation has left behind has no say any more
//	result = r.Conclude(run.Ending{...})     // the product of this run, or what replaces it
//
// A door never sees a lease, a claim, a journal's entry or an encoded record. This package never sees what a payload
// is.
//
// # The files
//
//	guard.go       Begin: the claim, and what follows from it
//	duplicate.go   what a request gets whose key another run has; Wait
//	run.go         a run, from Start to Conclude
//	control.go     what the operation can say about its run: Keep, Discard, Unknown, Retain
//	decide.go      the table: what a run does with its key
//	context.go     the context of the operation
//	lease.go       the protection by a lease alone
//	journal.go     the protection by a journal, beside a lease or alone
//	transact.go    the transaction that has effect and record
//	ask.go         how a journal is called
//	outage.go      what happens while Redis does not answer
//	resolve.go     an operator's word
package run
