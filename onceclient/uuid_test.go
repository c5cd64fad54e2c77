package onceclient_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

// fault: keys that are made within one instant are equal, or sort before an earlier one. Each goroutine's keys increase, and
// no two are equal.
func TestKeysOfOneInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // where time stands still
		var all [4][]string
		var running sync.WaitGroup
		for g := range all {
			running.Go(func() {
				for range 5000 { // more than a millisecond has places
					all[g] = append(all[g], onceclient.NewKey())
				}
			})
		}
		running.Wait()
		keys := slices.Concat(all[:]...)
		for _, made := range all {
			if !slices.IsSorted(made) {
				t.Error("the keys of a goroutine are not sorted")
			}
		}
		slices.Sort(keys)
		if n := len(slices.Compact(keys)); n != 20000 {
			t.Errorf("%d different keys, want 20000", n)
		}
	})
}

// A key begins with the time in milliseconds.
func TestKeyBeginsWithTheTime(t *testing.T) {
	t.Parallel()
	before := time.Now()
	key := strings.ReplaceAll(onceclient.NewKey(), "-", "")
	ms, err := strconv.ParseInt(key[:12], 16, 64)
	// The clock of keys may be ahead by what other tests have made in one instant.
	if made := time.UnixMilli(ms); err != nil || made.Before(before.Truncate(time.Millisecond)) || made.After(time.Now().Add(time.Minute)) {
		t.Errorf("%s tells %v, %v, want %v", key, made, err, before)
	}
}
