package model_test

import (
	"fmt"
	"strings"
)

// modelNode is a state that was reached, and how: by which step from which other one.
type modelNode struct {
	state modelState
	from  int
	step  modelStep
}

// modelRun is an exploration. Its nodes are in the order of their distance from the start.
type modelRun struct {
	rules modelRules
	nodes []modelNode
	seen  map[modelState]struct{}
	found map[string]string // by invariant: the shortest trace that breaks it
	ends  int               // states in which nothing is to be done any more
	kept  int               // those of them in which the key holds a value

	judged modelTransition // the latest one, here so that it is not allocated each time
}

// explore walks every interleaving, breadth first, until there is no state that it has not seen: there is no limit on
// depth or number. If counterexamples are wanted, it stops as soon as it has them all.
func (r modelRules) explore(wanted ...*modelInvariant) *modelRun {
	run := &modelRun{rules: r, seen: map[modelState]struct{}{}, found: map[string]string{}}
	start := modelState{faults: r.faults}
	run.seen[start] = struct{}{}
	run.nodes = append(run.nodes, modelNode{state: start})
	for at := 0; at < len(run.nodes); at++ {
		if len(wanted) > 0 && run.has(wanted) {
			break
		}
		state := run.nodes[at].state
		if state.ended() {
			run.ends++
			if state.key.kind == modelValue {
				run.kept++
			}
		}
		r.steps(state, func(step modelStep, to modelState) { run.visit(at, step, to) })
	}
	return run
}

// visit judges a transition, and keeps the state that it leads to if it is new.
func (run *modelRun) visit(at int, step modelStep, to modelState) {
	run.judged = newModelTransition(run.rules.faults, run.nodes[at].state, step, to)
	for _, inv := range modelInvariants {
		if !inv.holds(&run.judged) && run.found[inv.name] == "" {
			run.found[inv.name] = run.trace(at, step, to)
		}
	}
	if _, ok := run.seen[to]; !ok {
		run.seen[to] = struct{}{}
		run.nodes = append(run.nodes, modelNode{to, at, step})
	}
}

func (run *modelRun) has(wanted []*modelInvariant) bool {
	for _, inv := range wanted {
		if run.found[inv.name] == "" {
			return false
		}
	}
	return true
}

// trace lists the steps that lead to a transition, and the transition itself.
func (run *modelRun) trace(at int, step modelStep, to modelState) string {
	lines := []string{modelLine(step, to)}
	for ; at > 0; at = run.nodes[at].from {
		lines = append(lines, modelLine(run.nodes[at].step, run.nodes[at].state))
	}
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "\n  %2d. %s", i+1, lines[len(lines)-1-i])
	}
	return b.String()
}

func modelLine(step modelStep, s modelState) string {
	return fmt.Sprintf("%-66v key: %v", step, s.key)
}
