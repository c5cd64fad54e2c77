package model_test

// modelTransition is what an invariant judges.
type modelTransition struct {
	faults   modelFaults // that could come at the start
	from, to modelState
	event    modelEvent
	token    modelToken
	arrives  modelVerb // the command that the server carries out in this step
}

func newModelTransition(faults modelFaults, from modelState, step modelStep, to modelState) modelTransition {
	t := modelTransition{faults: faults, from: from, to: to, event: step.event, token: step.token}
	switch step.event {
	case modelArrive, modelArriveLate, modelRetryArrived, modelGiveUpArrived, modelReleased:
		t.arrives = step.verb
	}
	return t
}

// modelInvariant is a promise. Each says what it holds under, and TestModel checks that, and that it breaks otherwise.
type modelInvariant struct {
	name  string
	holds func(*modelTransition) bool
}

// Two processes never take themselves for the holder at the same time. Under: crash, lost reply, delayed command, the
// end of leases; with Hold also a paused process. Not under: failover, flush.
var modelExclusion = &modelInvariant{"mutual exclusion", func(t *modelTransition) bool {
	return !t.to.procs[0].believes() || !t.to.procs[1].believes()
}}

// Renewal, Settle and Release never change or remove what is another's, nor any value. Under: everything.
var modelOthers = &modelInvariant{"others are left alone", func(t *modelTransition) bool {
	if t.arrives == modelNothing || t.arrives == modelClaim || t.to.key == t.from.key {
		return true
	}
	own := t.from.key.kind == modelClaimed && t.from.key.token == t.token
	return own || t.from.key.kind == modelAbsent
}}

// A value goes only by failover or flush (which its retention's end is, too). Under: everything.
var modelValueStays = &modelInvariant{"a value stays", func(t *modelTransition) bool {
	taken := t.event == modelFailover || t.event == modelFlush
	return taken || t.from.key.kind != modelValue || t.to.key == t.from.key
}}

// After a Settle that was told to have succeeded, every claim reads its value. Under: all but failover and flush.
var modelAckedIsRead = &modelInvariant{"a confirmed value is read", func(t *modelTransition) bool {
	if t.arrives != modelClaim || t.from.acked == 0 {
		return true
	}
	return t.from.key == modelKey{kind: modelValue, token: t.from.acked}
}}

// Nobody has an effect after somebody has settled. Under: crash, lost reply, delayed command, the end of leases; with
// Hold also a paused process. Not under: failover, flush (the holder learns of it from its next renewal only).
var modelNoneAfterSettle = &modelInvariant{"no effect after a value", func(t *modelTransition) bool {
	settled := t.from.recorded || t.from.key.kind == modelValue
	return t.event != modelEffect || !settled
}}

// After a Settle that came before anybody else claimed, no claim is granted: what was completed is not begun again,
// though the server had lost the claim before. Under: everything; it ends when a failover or a flush takes the value.
var modelNotRepeated = &modelInvariant{"what is completed is not repeated", func(t *modelTransition) bool {
	granted := t.arrives == modelClaim && t.from.key.kind == modelAbsent
	return !granted || !t.from.recorded
}}

// There is at most one effect. Under: lost reply, delayed command; with Hold also crash, the end of leases, a paused
// process. Not under: failover, flush.
var modelOneEffect = &modelInvariant{"at most one effect", func(t *modelTransition) bool {
	return t.to.effects <= 1
}}

// In the end there is a value if there was an effect, and only then. Under: lost reply, delayed command; with Hold also
// the end of leases, a paused process. Not under: crash, failover, flush.
var modelEffectHasValue = &modelInvariant{"an effect leaves its value", func(t *modelTransition) bool {
	return !t.to.ended() || (t.to.effects > 0) == (t.to.key.kind == modelValue)
}}

// In the end, if nobody died, no claim is left but one that ends with its lease, and this only if somebody had to give
// up on a command. Under: all but crash and failover; with a hold also not under: a flush, after which the first try of
// a claim that was granted at the second one, and settled, arrives.
var modelNoOrphan = &modelInvariant{"no orphan", func(t *modelTransition) bool {
	died := t.to.faults.crash < t.faults.crash
	if t.to.key.kind != modelClaimed || died || !t.to.ended() {
		return true
	}
	gaveUp := t.to.faults.delayed < t.faults.delayed
	return gaveUp && !t.to.key.held
}}

// No claim under a hold is left in the end whose handler never began. Under: all but crash (nobody releases for the
// dead) and failover.
var modelNotAbandoned = &modelInvariant{"nothing is abandoned that did not run", func(t *modelTransition) bool {
	return !t.to.ended() || !t.to.key.held || t.to.ran[t.to.key.token]
}}

var modelInvariants = []*modelInvariant{
	modelExclusion, modelOthers, modelValueStays, modelAckedIsRead, modelNoneAfterSettle, modelNotRepeated,
	modelOneEffect, modelEffectHasValue, modelNoOrphan, modelNotAbandoned,
}
