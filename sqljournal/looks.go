package sqljournal

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// looks lets concurrent looks travel together. A look is sent at once while fewer than maxFlights statements are under
// way; otherwise it waits for one of them to end. The first that waits then sends all that wait, in its own goroutine.
//
// A flight is sent with the context of its leader, so it can fail for a reason that is the leader's own. The others then
// look alone. So does one that has waited for lookPatience: the connection that it waits for may be silent.
type looks struct {
	mu      sync.Mutex
	flights int
	waiting []*looker
}

const (
	maxFlights   = 2
	maxLooks     = 64 // in a flight
	lookPatience = 100 * time.Millisecond
)

// looker is one look that waits.
type looker struct {
	key  string
	told chan looked // has room for the one value that is ever sent

	leads bool // it was told to lead; guarded by looks.mu
}

// looked is what a looker is told.
type looked struct {
	lead  bool // it has to send the next flight
	alone bool // its flight has failed
	row   row
}

type (
	lookOneFunc  func(ctx context.Context, key string) (row, error)
	lookManyFunc func(ctx context.Context, keys []string) (map[string]row, error)
)

func (l *looks) do(ctx context.Context, key string, one lookOneFunc, many lookManyFunc) (row, error) {
	self := l.enter(key)
	if self == nil { // sent at once
		defer l.pass()
		return one(ctx, key)
	}
	patience := time.NewTimer(lookPatience)
	defer patience.Stop()
	var got looked
	select {
	case got = <-self.told:
	case <-patience.C:
		l.leave(self)
		return one(ctx, key)
	case <-ctx.Done():
		l.leave(self)
		return row{}, ctx.Err()
	}
	switch {
	case got.lead:
		return l.lead(ctx, self, one, many)
	case got.alone:
		return one(ctx, key)
	}
	return got.row, nil
}

// enter returns nil if the caller may send, and then has to pass.
func (l *looks) enter(key string) *looker {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights < maxFlights {
		l.flights++
		return nil
	}
	w := &looker{key: key, told: make(chan looked, 1)}
	l.waiting = append(l.waiting, w)
	return w
}

// pass ends a flight. The first that waits has to send the next one.
func (l *looks) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.flights--
		return
	}
	next := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	next.leads = true
	next.told <- looked{lead: true}
}

// leave is called by one that waits no longer. It does not lead then.
func (l *looks) leave(self *looker) {
	l.mu.Lock()
	i := slices.Index(l.waiting, self)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	leads := self.leads
	l.mu.Unlock()
	if leads {
		l.pass()
	}
}

// lead sends the looks that wait, self among them.
func (l *looks) lead(ctx context.Context, self *looker, one lookOneFunc, many lookManyFunc) (row, error) {
	defer l.pass()
	others := l.take(maxLooks - 1)
	if len(others) == 0 {
		return one(ctx, self.key)
	}
	done := false
	defer func() {
		if !done {
			for _, o := range others {
				o.told <- looked{alone: true}
			}
		}
	}()
	keys := []string{self.key}
	for _, o := range others {
		keys = append(keys, o.key)
	}
	found, err := many(ctx, keys)
	if err != nil {
		return row{}, err
	}
	done = true
	for _, o := range others {
		r := found[o.key]
		r.note, r.record = bytes.Clone(r.note), bytes.Clone(r.record) // several may have asked for this key
		o.told <- looked{row: r}
	}
	return found[self.key], nil
}

// take removes up to n looks from those that wait.
func (l *looks) take(n int) []*looker {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.waiting))
	taken := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return taken
}
