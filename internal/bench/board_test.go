package main

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestShuffled(t *testing.T) {
	var seats []seat
	for _, c := range contenders(false) {
		seats = append(seats, seat{contender: c})
	}
	orders := map[string]bool{}
	order, again := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	for range 20 {
		got := shuffled(seats, order)
		if same := shuffled(seats, again); !slices.Equal(got, same) {
			t.Fatalf("one seed gave %v and %v", got, same)
		}
		if sorted := slices.Sorted(slices.Values(got)); len(slices.Compact(sorted)) != len(seats) {
			t.Fatalf("%v are not all seats", got)
		}
		var text string
		var inOrder []contender
		for _, i := range got {
			inOrder = append(inOrder, seats[i].contender)
			text += seats[i].id() + " "
		}
		orders[text] = true
		met := slices.CompactFunc(inOrder, func(a, b contender) bool { return a.group == b.group })
		if len(met) != len(groups(contenders(false))) {
			t.Fatalf("groups are torn apart: %s", text)
		}
	}
	if len(orders) < 19 {
		t.Errorf("20 rounds had %d orders", len(orders))
	}
}

func TestPlace(t *testing.T) {
	for _, test := range []struct {
		callers int
		cores   []int
		want    string
	}{
		{1, []int{0, 1}, "together on core 0"},
		{16, []int{0, 1}, "bench on core 0, Redis on core 1"},
		{16, []int{2, 4, 6}, "bench on core 2, Redis on core 6"},
		{16, []int{3}, "together on core 3"},
		{16, nil, "not pinned"},
	} {
		if got := place(test.callers, test.cores).String(); got != test.want {
			t.Errorf("%d callers on cores %v: %s, want %s", test.callers, test.cores, got, test.want)
		}
	}
}
