package main

import (
	"strconv"
	"testing"
)

func TestHistoryKeepsTheLast(t *testing.T) {
	t.Parallel()
	var h history[int]
	for i := range historyLimit + 3 {
		h.add("ann", strconv.Itoa(i), i)
	}
	list := h.of("ann")
	if got := len(list); got != historyLimit {
		t.Fatalf("kept: got %d, want %d", got, historyLimit)
	}
	if first, last := list[0], list[len(list)-1]; first != 3 || last != historyLimit+2 {
		t.Errorf("got %d to %d, want 3 to %d", first, last, historyLimit+2)
	}
	if _, ok := h.find("ann", "2"); ok {
		t.Error("found one that was dropped")
	}
	if got, ok := h.find("ann", "3"); !ok || got != 3 {
		t.Errorf("found %d, %v; want 3", got, ok)
	}
	if _, ok := h.find("bob", "3"); ok {
		t.Error("found another owner's")
	}
}
