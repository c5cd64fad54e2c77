package model_test

import "slices"

// begin emits that the process sends its next claim. The lease is counted from here.
func (r modelRules) begin(s modelState, p int, emit modelEmit) {
	proc := &s.procs[p]
	if proc.begun == modelClaims || p == 1 && s.procs[0].begun == 0 {
		return // the process that begins is called A: the other way round would be the same, with other names
	}
	proc.begun++
	proc.send(modelClaim)
	proc.valid = modelLease - 1
	emit(modelStep{event: modelSend, token: s.token(p), verb: modelClaim}, s)
}

// onItsWay emits what may come of a command that was sent: the server carries it out and the reply comes, or is lost,
// or the sender has waited for long enough before that.
func (r modelRules) onItsWay(s modelState, p int, emit modelEmit) {
	verb, token := s.procs[p].doing, s.token(p)
	if s.faults.delayed > 0 && s.late[token].verb == modelNothing {
		next := s
		next.faults.delayed--
		next.late[token].verb = verb
		r.noReply(next, p, false, emit)
	}

	reply := r.carryOut(&s, verb, token)
	if s.faults.lost > 0 {
		next := s
		next.faults.lost--
		r.noReply(next, p, true, emit)
	}
	s.procs[p].reply = reply
	if reply == modelRefused || verb == modelSettle || verb == modelRelease {
		r.hear(&s, p) // to hear it later would change nothing: nobody believes to hold because of it
	}
	emit(modelStep{modelArrive, token, verb, reply}, s)
}

// answered emits that a claim is confirmed to the process, at any time after it was carried out.
func (r modelRules) answered(s modelState, p int, emit modelEmit) {
	step := modelStep{modelHear, s.token(p), s.procs[p].doing, s.procs[p].reply}
	r.hear(&s, p)
	emit(step, s)
}

// hear lets the process act upon a reply.
func (r modelRules) hear(s *modelState, p int) {
	proc := &s.procs[p]
	yes := proc.reply == modelYes
	if r.mutant == modelValidFromReply && proc.doing == modelClaim && yes {
		proc.valid = modelLease - 1
	}
	switch {
	case proc.doing == modelClaim && yes && proc.valid == 0:
		proc.send(modelRelease) // granted too late
	case proc.doing == modelClaim && yes:
		proc.run()
		s.ran[s.token(p)] = r.hold
	case proc.doing == modelSettle && yes:
		if s.acked == 0 {
			s.acked = s.token(p)
		}
		s.finish(p)
	default:
		if mayReturn := s.late[s.token(p)].verb == modelClaim; r.hold && mayReturn && r.mutant != modelFirstTryForgotten {
			s.unneeded[s.token(p)] = true
		}
		s.finish(p)
	}
}

// noReply emits what a process does that got none: it sends the same command with the same token again, or it gives up.
func (r modelRules) noReply(s modelState, p int, arrived bool, emit modelEmit) {
	proc, token := &s.procs[p], s.token(p)
	verb := proc.doing
	retry, giveUp := modelRetry, modelGiveUp
	if arrived {
		retry, giveUp = modelRetryArrived, modelGiveUpArrived
	}
	emit(modelStep{event: retry, token: token, verb: verb}, s)

	switch {
	case r.hold && (verb == modelClaim || verb == modelRelease):
		s.finish(p)
		s.unneeded[token] = true
		s.late[token].watched = verb == modelClaim && !arrived
	case verb == modelClaim && arrived:
		s.finish(p)
		s.late[token].verb = modelRelease // in the background
	case verb == modelClaim:
		s.finish(p)
		s.late[token].watched = true
	case arrived, proc.valid == 0:
		s.finish(p)
	default:
		return // Settle and Release are tried for as long as the lease lasts
	}
	emit(modelStep{event: giveUp, token: token, verb: verb}, s)
}

// run emits what a handler may do. It has its effect only while it takes itself for the holder; then it settles. If it
// ends without an effect, it releases.
func (r modelRules) run(s modelState, p int, emit modelEmit) {
	token := s.token(p)
	if s.procs[p].believes() {
		next := s
		next.effects = min(s.effects+1, 2)
		next.procs[p].send(modelSettle)
		emit(modelStep{event: modelEffect, token: token}, next)
	}
	next := s
	next.procs[p].send(modelRelease)
	emit(modelStep{event: modelDiscard, token: token}, next)

	if proc := s.procs[p]; s.faults.paused > 0 && proc.valid > 0 && !proc.blind {
		next := s
		next.faults.paused--
		next.procs[p].blind = true
		emit(modelStep{event: modelPause, token: token}, next)
	}
}

// renewal emits what a renewal does next, beside everything else. It is due when a tick, a third of the lease, is over.
// There is one at a time, and any number of them.
func (r modelRules) renewal(s modelState, p int, emit modelEmit) {
	proc, token := &s.procs[p], s.token(p)
	switch {
	case proc.renewal == modelIdle && proc.works() && proc.valid > 0 && proc.valid < modelLease-1 && !proc.blind:
		proc.renewal, proc.renewValid = modelSent, modelLease-1
		if r.mutant == modelRenewalUnconfirmed {
			proc.valid = modelLease - 1
		}
		emit(modelStep{event: modelSend, token: token, verb: modelRenew}, s)
	case proc.renewal == modelSent:
		r.renewalOnItsWay(s, p, emit)
	case proc.renewal == modelConfirmed && !proc.blind:
		proc.valid = max(proc.valid, proc.renewValid)
		proc.renewal, proc.renewValid = modelIdle, 0
		emit(modelStep{modelHear, token, modelRenew, modelYes}, s)
	}
}

// renewalOnItsWay emits what may come of a renewal that was sent. If the reply is lost, then the lease lasts no longer
// than before, as far as the process knows.
func (r modelRules) renewalOnItsWay(s modelState, p int, emit modelEmit) {
	token := s.token(p)
	lost := func(s modelState, event modelEvent) {
		proc := &s.procs[p]
		proc.renewal, proc.renewValid = modelIdle, 0
		emit(modelStep{event: event, token: token, verb: modelRenew}, s)
	}
	if s.faults.delayed > 0 && s.late[token].verb == modelNothing {
		next := s
		next.faults.delayed--
		next.late[token].verb = modelRenew
		lost(next, modelGiveUp)
	}

	reply := r.carryOut(&s, modelRenew, token)
	if s.faults.lost > 0 {
		next := s
		next.faults.lost--
		lost(next, modelGiveUpArrived)
	}
	proc := &s.procs[p]
	if reply == modelYes {
		proc.renewal = modelConfirmed
	} else { // told at once: a renewal that arrives later is as good as a reply that does
		proc.renewal = modelIdle
		s.lose(p)
	}
	emit(modelStep{modelArrive, token, modelRenew, reply}, s)
}

// crash emits the death of a process that has a claim, or claims to release, before or after what it has sent has left
// it. Without a hold, to die while the claim is on its way is like giving up on it. To die while the release is on its way
// is like dying before it.
func (r modelRules) crash(s modelState, p int, emit modelEmit) {
	proc, token := s.procs[p], s.token(p)
	granted := proc.works() || proc.doing == modelClaim && (proc.reply == modelYes || r.hold)
	releases := slices.Contains(s.unneeded[1+p*modelClaims:1+(p+1)*modelClaims], true)
	if s.faults.crash == 0 || !granted && !releases {
		return
	}
	s.faults.crash--
	s.finish(p)
	for claim := range modelClaims {
		s.late[1+p*modelClaims+claim].watched = false
		s.unneeded[1+p*modelClaims+claim] = false
	}
	emit(modelStep{event: modelCrash, token: token}, s)
	if proc.doing != modelNothing && proc.reply == modelNone && s.late[token].verb == modelNothing {
		s.late[token].verb = proc.doing
		emit(modelStep{event: modelCrashSent, token: token, verb: proc.doing}, s)
	}
}
