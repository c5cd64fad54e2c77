package run

import "sync"

// waiting counts the callers in Wait. Its zero value is ready to use, and its methods may be called concurrently.
type waiting struct {
	mu    sync.Mutex
	all   int            // guarded by mu
	byKey map[string]int // guarded by mu; has no key without callers
}

// enter counts a caller, unless most are counted, or a tenth of most for its key: one client that repeats its own key
// leaves the others nine tenths. One caller may always wait for a key.
func (w *waiting) enter(key string, most int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= most || w.byKey[key] >= max(1, most/10) {
		return false
	}
	if w.byKey == nil {
		w.byKey = map[string]int{}
	}
	w.all++
	w.byKey[key]++
	return true
}

// leave no longer counts a caller that has entered.
func (w *waiting) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.byKey[key]--; w.byKey[key] == 0 {
		delete(w.byKey, key)
	}
}
