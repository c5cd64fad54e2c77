package check

import (
	"sync"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

const (
	loadKeys        = 200
	loadRepetitions = 5
)

// loadShuffled sends 200 operations five times each, in any order and over all instances.
func loadShuffled(t *T) {
	const needed = loadKeys * (loadRepetitions + 1)
	if left := t.s.Client.Left(); left < needed {
		t.NotAsked("it needs up to %d requests, and %d are left of the budget", needed, left)
	}
	operations := make([]ask.Operation, loadKeys)
	for i := range operations {
		operations[i] = t.s.operation()
	}
	w := t.Watch()
	byKey, refused := storm(t, operations)
	t.skipIf(refused == loadKeys*loadRepetitions && byKey[0][0].NobodyListens(), "the server does not listen: %s", byKey[0][0])
	for i, op := range operations {
		if successes(byKey[i]...) > 0 {
			continue
		}
		settled := t.Settle(t.s.request(op))
		if !settled.Success() {
			t.Show(append(byKey[i], settled)...)
			t.Failf("a success for every key in the end", "%s", settled)
		}
		byKey[i] = append(byKey[i], settled)
	}
	for _, exchanges := range byKey {
		w.See(exchanges...)
		if two := twoBodies(exchanges); two != nil {
			t.Show(two...)
			t.Failf("one body for each key", "two bodies")
		}
	}
	t.Show(byKey[0]...)
	if n := w.Effects(loadKeys); n != loadKeys {
		t.Failf("200 effects", "%s", effects(n))
	}
	t.Say("%d keys, %d requests, %d of them refused on the way", loadKeys, loadKeys*loadRepetitions, refused)
}

// storm sends each operation five times, as many at a time as the client may. It returns the exchanges by operation, and
// how many were no success.
func storm(t *T, operations []ask.Operation) (byKey [][]ask.Exchange, refused int) {
	order := make([]int, len(operations)*loadRepetitions)
	for i := range order {
		order[i] = i / loadRepetitions
	}
	t.s.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	byKey = make([][]ask.Exchange, len(operations))
	next := make(chan int)
	var mu sync.Mutex // guards byKey and refused
	var workers sync.WaitGroup
	for worker := range t.s.Client.Parallel() {
		workers.Go(func() {
			for i := range next {
				r := t.s.request(operations[i])
				if t.s.Also != nil && worker%2 == 1 {
					r = at(r, t.s.Also, operations[i])
				}
				e := t.s.Client.Do(t.ctx, r)
				mu.Lock()
				byKey[i] = append(byKey[i], e)
				if !e.Success() {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	for _, i := range order {
		next <- i
	}
	close(next)
	workers.Wait()
	return byKey, refused
}
