package run

import "testing"

// A tenth of the places, and one at least, are for one key. Of a key without callers nothing is kept.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for most, ofKey := range map[int]int{1: 1, 5: 1, 20: 2} {
		var w waiting
		for n := range ofKey + 1 {
			if entered := w.enter("k", most); entered != (n < ofKey) {
				t.Errorf("caller %d of %d for a key has a place: %t", n+1, most, entered)
			}
		}
		for range ofKey {
			w.exit("k")
		}
		if w.all != 0 || len(w.byKey) != 0 {
			t.Errorf("%d callers of %v are left", w.all, w.byKey)
		}
	}
}
