package model_test

import "strings"

// modelRules are the protocol and the world that it runs in. The zero value is the protocol as it is implemented, in a
// world without time and faults.
type modelRules struct {
	time   bool // leases run out
	hold   bool // every claim has a hold from the first
	faults modelFaults

	mutant modelMutant // the rule that is taken out of the protocol
}

// modelMutant is the protocol without one of its rules.
type modelMutant uint8

const (
	modelIntact             modelMutant = iota
	modelBlindRelease                   // Release does not compare tokens
	modelBlindRenewal                   // nor does the renewal
	modelSettleOverValue                // Settle overwrites somebody else's value
	modelSettleOverClaim                // Settle overwrites somebody else's claim
	modelSettleNeedsClaim               // Settle writes nothing where the key is absent
	modelOwnClaimUnknown                // a claim that finds itself takes itself for somebody else's
	modelHoldExpires                    // a held claim is free when its lease runs out
	modelValidFromReply                 // the lease is counted from the reply, not from before the command
	modelRenewalUnconfirmed             // a renewal counts when it is sent
	modelReleasedOnce                   // an unneeded claim is not released again once the server has answered
	modelReleaseUnanswered              // an unneeded claim is released only once, answered or not
	modelFirstTryForgotten              // a release does not count with an earlier try of the claim that may still arrive
)

// modelEvent is a kind of transition.
type modelEvent uint8

const (
	modelStart modelEvent = iota
	modelTick
	modelFlush
	modelFailover
	modelSend
	modelArrive
	modelArriveLate
	modelHear
	modelRetry
	modelRetryArrived
	modelGiveUp
	modelGiveUpArrived
	modelReleased
	modelReleasedLost
	modelEffect
	modelDiscard
	modelPause
	modelCrash
	modelCrashSent
)

var modelEventText = [...]string{
	modelStart:         "start",
	modelTick:          "a tick passes",
	modelFlush:         "the server loses the key",
	modelFailover:      "a replica takes over that is some writes behind",
	modelSend:          "TOKEN sends its VERB",
	modelArrive:        "TOKEN's VERB is carried out: REPLY",
	modelArriveLate:    "TOKEN's VERB arrives late: REPLY",
	modelHear:          "TOKEN hears of its VERB: REPLY",
	modelRetry:         "TOKEN's VERB is late, TOKEN sends it again",
	modelRetryArrived:  "TOKEN's VERB is carried out, the reply lost, TOKEN sends it again",
	modelGiveUp:        "TOKEN's VERB is late, TOKEN gives up on it",
	modelGiveUpArrived: "TOKEN's VERB is carried out, the reply lost, TOKEN gives up on it",
	modelReleased:      "TOKEN is released in the background: REPLY",
	modelReleasedLost:  "TOKEN's release in the background does not arrive",
	modelEffect:        "TOKEN has its effect and sends settle",
	modelDiscard:       "TOKEN ends without effect and sends release",
	modelPause:         "TOKEN's process is paused",
	modelCrash:         "TOKEN's process dies",
	modelCrashSent:     "TOKEN's process dies, its VERB is on its way",
}

// modelStep is one transition, in a form that invariants can look at and people can read.
type modelStep struct {
	event modelEvent
	token modelToken
	verb  modelVerb
	reply modelReply
}

func (s modelStep) String() string {
	fill := strings.NewReplacer("TOKEN", s.token.String(), "VERB", s.verb.String(), "REPLY", s.reply.String())
	return fill.Replace(modelEventText[s.event])
}

// modelEmit takes a step and the state that it leads to.
type modelEmit func(modelStep, modelState)

// steps emits everything that may happen next.
func (r modelRules) steps(s modelState, emit modelEmit) {
	r.world(s, emit)
	for token, late := range s.late {
		if late.verb != modelNothing {
			r.arriveLate(s, modelToken(token), late, emit)
		}
	}
	for token, unneeded := range s.unneeded {
		if unneeded {
			r.releaseUnneeded(s, modelToken(token), emit)
		}
	}
	for p := range s.procs {
		switch proc := s.procs[p]; {
		case proc.running:
			r.run(s, p, emit)
		case proc.doing == modelNothing:
			r.begin(s, p, emit)
		case proc.reply == modelNone:
			r.onItsWay(s, p, emit)
		default:
			r.answered(s, p, emit)
		}
		r.renewal(s, p, emit)
		r.crash(s, p, emit)
	}
}

// serve is what the server does with a command.
func (r modelRules) serve(k modelKey, verb modelVerb, token modelToken) (modelKey, modelReply) {
	absent := k.kind == modelAbsent
	ownClaim := k.kind == modelClaimed && k.token == token
	ownValue := k.kind == modelValue && k.token == token
	switch verb {
	case modelClaim:
		switch {
		case absent:
			return modelKey{kind: modelClaimed, token: token, held: r.hold, left: modelLease}, modelYes
		case ownClaim && r.mutant != modelOwnClaimUnknown:
			return k, modelYes
		}
	case modelRenew:
		switch {
		case ownClaim, r.mutant == modelBlindRenewal && k.kind == modelClaimed:
			k.left = modelLease
			return k, modelYes
		case ownValue:
			return k, modelYes
		}
	case modelSettle:
		switch {
		case absent && r.mutant != modelSettleNeedsClaim, ownClaim, ownValue,
			r.mutant == modelSettleOverValue && k.kind == modelValue,
			r.mutant == modelSettleOverClaim && k.kind == modelClaimed:
			return modelKey{kind: modelValue, token: token}, modelYes
		}
	case modelRelease:
		switch {
		case ownClaim, r.mutant == modelBlindRelease && k.kind == modelClaimed:
			return modelKey{}, modelYes
		case absent, ownValue:
			return k, modelYes
		}
	}
	return k, modelRefused
}

// carryOut lets a command arrive.
func (r modelRules) carryOut(s *modelState, verb modelVerb, token modelToken) modelReply {
	before := s.key
	var reply modelReply
	s.key, reply = r.serve(before, verb, token)
	if s.key != before && s.faults.failover > 0 {
		copy(s.past[1:], s.past[:])
		s.past[0] = before
	}
	if verb == modelSettle && (before.kind == modelAbsent || before.kind == modelClaimed && before.token == token) {
		s.recorded = true
	}
	return reply
}

// world emits what happens to the server and to the clocks.
func (r modelRules) world(s modelState, emit modelEmit) {
	if r.time {
		emit(modelStep{event: modelTick}, r.tick(s))
	}
	if s.faults.flush > 0 && s.key.kind != modelAbsent {
		next := s
		next.faults.flush--
		next.key, next.recorded = modelKey{}, false
		emit(modelStep{event: modelFlush}, next)
	}
	if s.faults.failover == 0 {
		return
	}
	for _, old := range s.past {
		next := s
		next.faults.failover--
		next.key, next.past = old, [modelPast]modelKey{}
		next.recorded = s.recorded && old.kind == modelValue
		emit(modelStep{event: modelFailover}, next)
	}
}

// tick lets time pass, alike for all.
func (r modelRules) tick(s modelState) modelState {
	holds := r.mutant != modelHoldExpires
	s.key.age(holds)
	for i := range s.past {
		s.past[i].age(holds)
	}
	for p := range s.procs {
		proc := &s.procs[p]
		proc.valid, proc.renewValid = modelLess(proc.valid), modelLess(proc.renewValid)
		if proc.valid == 0 {
			s.lose(p)
		}
	}
	return s
}

// arriveLate emits the arrival of a command that nobody waits for. Who gave up on a claim releases it, if the reply is
// seen after all.
func (r modelRules) arriveLate(s modelState, token modelToken, late modelLate, emit modelEmit) {
	s.late[token] = modelLate{}
	reply := r.carryOut(&s, late.verb, token)
	step := modelStep{modelArriveLate, token, late.verb, reply}
	emit(step, s)
	if late.watched && reply == modelYes {
		s.late[token].verb = modelRelease
		emit(step, s)
	}
}

// releaseUnneeded emits the release of a claim under a hold that no run needs. Its process sends it until the server has
// answered, and again for as long as a command of the claim may arrive. (In truth for ten minutes.)
func (r modelRules) releaseUnneeded(s modelState, token modelToken, emit modelEmit) {
	if s.faults.lost > 0 && r.mutant == modelReleaseUnanswered {
		next := s
		next.faults.lost--
		next.unneeded[token] = false
		emit(modelStep{event: modelReleasedLost, token: token, verb: modelRelease}, next)
	}
	reply := r.carryOut(&s, modelRelease, token)
	s.unneeded[token] = s.late[token].verb == modelClaim && r.mutant != modelReleasedOnce
	emit(modelStep{modelReleased, token, modelRelease, reply}, s)
}
