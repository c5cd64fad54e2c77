package model_test

import (
	"slices"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestModel explores the protocol under classes of faults, for two processes with two claims each. The invariants that
// do not hold are listed, and must be found broken: what the documentation calls a limit is a counterexample here.
func TestModel(t *testing.T) {
	network := modelFaults{lost: 1, delayed: 1}
	// By default the largest worlds have no delayed command.
	crashes := redistest.Rounds(modelFaults{crash: 1, lost: 1}, modelFaults{crash: 1, lost: 1, delayed: 1})
	pauses := redistest.Rounds(modelFaults{paused: 1, lost: 1}, modelFaults{paused: 1, lost: 1, delayed: 1})
	lease := []*modelInvariant{modelOneEffect, modelEffectHasValue}
	pause := append(lease, modelExclusion, modelNoneAfterSettle)
	flush := append(pause, modelAckedIsRead)
	failover := append(flush, modelNoOrphan)

	for _, test := range []struct {
		name       string
		time, hold bool
		faults     modelFaults
		limits     []*modelInvariant
	}{
		{"network", false, false, network, nil},
		{"crash", true, false, crashes, lease},
		{"pause, lost", true, false, modelFaults{paused: 1, lost: 1}, pause},
		{"pause, delayed", true, false, modelFaults{paused: 1, delayed: 1}, pause},
		{"flush, lost", true, false, modelFaults{flush: 1, lost: 1}, flush},
		{"flush, delayed", true, false, modelFaults{flush: 1, delayed: 1}, flush},
		{"failover, lost", true, false, modelFaults{failover: 1, lost: 1}, failover},
		{"failover, delayed", true, false, modelFaults{failover: 1, delayed: 1}, failover},

		{"hold, network", false, true, network, nil},
		{"hold, pause", true, true, pauses, nil},
		{"hold, crash", true, true, crashes, []*modelInvariant{modelEffectHasValue, modelNotAbandoned}},
		{"hold, flush, lost", true, true, modelFaults{flush: 1, lost: 1}, flush},
		{"hold, flush, delayed", true, true, modelFaults{flush: 1, delayed: 1}, append(flush, modelNoOrphan)},
		{"hold, failover", true, true, modelFaults{failover: 1, lost: 1}, append(failover, modelNotAbandoned)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			run := modelRules{time: test.time, hold: test.hold, faults: test.faults}.explore()
			t.Logf("%d states, all there are; in %d of them all is over, in %d of these with a value",
				len(run.nodes), run.ends, run.kept)
			if run.kept == 0 {
				t.Error("no run ever got to its end")
			}
			for _, inv := range modelInvariants {
				limit, trace := slices.Contains(test.limits, inv), run.found[inv.name]
				switch {
				case limit && trace == "":
					t.Errorf("%s: holds, got no counterexample to what is documented as a limit", inv.name)
				case !limit && trace != "":
					t.Errorf("%s: broken%s", inv.name, trace)
				case limit:
					t.Logf("%s: a limit%s", inv.name, trace)
				}
			}
		})
	}
}

// TestModelMutants takes single rules out of the protocol. Each of them is missed: without it there is a counterexample
// to something that holds with it in the very same world.
func TestModelMutants(t *testing.T) {
	for _, test := range []struct {
		name   string
		mutant modelMutant
		world  modelRules
		breaks []*modelInvariant
	}{
		{"Release compares no token", modelBlindRelease, modelRules{time: true},
			[]*modelInvariant{modelOthers, modelExclusion}},
		{"renewal compares no token", modelBlindRenewal, modelRules{time: true},
			[]*modelInvariant{modelOthers}},
		{"Settle overwrites a value", modelSettleOverValue, modelRules{time: true},
			[]*modelInvariant{modelOthers, modelValueStays, modelAckedIsRead}},
		{"Settle overwrites a claim", modelSettleOverClaim, modelRules{time: true},
			[]*modelInvariant{modelOthers, modelNoneAfterSettle}},
		{"Settle needs its claim", modelSettleNeedsClaim, modelRules{faults: modelFaults{flush: 1}},
			[]*modelInvariant{modelNotRepeated}},
		{"own claim is not recognized", modelOwnClaimUnknown, modelRules{faults: modelFaults{lost: 1}},
			[]*modelInvariant{modelNoOrphan}},
		{"hold has no effect", modelHoldExpires, modelRules{time: true, hold: true, faults: modelFaults{crash: 1}},
			[]*modelInvariant{modelOneEffect}},
		{"lease is counted from the reply", modelValidFromReply, modelRules{time: true},
			[]*modelInvariant{modelExclusion}},
		{"an unneeded claim is not released again", modelReleasedOnce,
			modelRules{hold: true, faults: modelFaults{delayed: 1}}, []*modelInvariant{modelNoOrphan, modelNotAbandoned}},
		{"a release without an answer is not repeated", modelReleaseUnanswered,
			modelRules{hold: true, faults: modelFaults{lost: 2}}, []*modelInvariant{modelNoOrphan, modelNotAbandoned}},
		{"the first try is forgotten", modelFirstTryForgotten,
			modelRules{hold: true, faults: modelFaults{delayed: 1}}, []*modelInvariant{modelNoOrphan}},
		{"renewal counts unconfirmed", modelRenewalUnconfirmed, modelRules{time: true, faults: modelFaults{delayed: 1}},
			[]*modelInvariant{modelExclusion}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			intact := test.world.explore()
			world := test.world
			world.mutant = test.mutant
			mutated := world.explore(test.breaks...)
			t.Logf("%d states intact, %d until the counterexamples", len(intact.nodes), len(mutated.nodes))
			for _, inv := range test.breaks {
				if trace := intact.found[inv.name]; trace != "" {
					t.Errorf("%s: broken without the mutant%s", inv.name, trace)
				}
				if trace := mutated.found[inv.name]; trace != "" {
					t.Logf("%s: broken%s", inv.name, trace)
				} else {
					t.Errorf("%s: holds, the mutant was not found", inv.name)
				}
			}
		})
	}
}
