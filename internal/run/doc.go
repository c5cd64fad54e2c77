// Package run runs an operation once for each key. It knows no HTTP. A door is what
// protects operations of one kind: package middleware the handlers of HTTP requests, package once functions. A door
// derives the key, calls Begin, runs its operation if it may, and returns to its client what the Result says:
//
//	r := &run.Run{Request: run.Request{Key: key, Fingerprints: fingerprints}}
//	result := guard.Begin(ctx, r)
//	if result.Kind == run.InFlight {
//		result = guard.Wait(ctx, r, result)
//	}
//	if result.Kind != run.Begun {
//		return answer(result)            // a stored record, or why there is none
//	}
//	result = r.Do(func() {
//		operation(r.Start(product))      // with the context that Start returns
//		r.CutOff()                       // goroutines that the operation has left behind have no effect any more
//	}, ending, report)                       // Own: the product of this run; otherwise what replaces it
//
// A door never sees a lease, a claim, a journal's entry or an encoded record. The operation's product is a response or a
// value. This package sees it only as bytes, the payload of a record.
//
// # The files
//
//	guard.go       the policy, and the Guard; how many wait
//	begin.go       Begin: the claim, and what follows from it
//	request.go     what a door asks for, and the context of what is sent for it
//	duplicate.go   what a request gets whose key another run has; Wait
//	result.go      what Begin, Wait and Conclude return
//	answers.go     the table: what a request gets that does not run
//	run.go         a run, from Start to Conclude; Do, also after a panic
//	control.go     what the operation decides about its run: Keep, Discard, Unknown, Retain
//	decide.go      the table: what a run does with its key
//	decision.go    a row of it: what is stored, done to the key and told to the observer
//	context.go     the context of the operation
//	leased.go      the protection by a lease alone; a run that has lost its key
//	journaled.go   the protection by a journal, beside a lease or alone
//	transact.go    the transaction that has effect and record
//	ask.go         how a journal is called, and retried in the background
//	outage.go      what happens while Redis does not answer
//	resolve.go     how an operator ends a run whose outcome is unknown
//	inspect.go     what an operator sees of a key
package run
