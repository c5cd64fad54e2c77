package demo

import (
	"cmp"
	"sync"
	"time"
)

const (
	maxShops = 1000
	maxIdle  = 30 * time.Minute // after which a shop that nobody looks at is forgotten
)

// registry has the shops of all visitors. The zero value is empty. It is safe for concurrent use.
type registry struct {
	mu    sync.Mutex
	shops map[string]*shop
	swept time.Time
}

// of returns the visitor's shop, and opens one if there is none. When there are too many, the one that was left longest
// ago makes room. If all of them are watched, it is the one that was used longest ago, whose streams end: a client with a
// thousand streams must not shut out everybody else. If a request runs in each of them, of returns nil.
func (g *registry) of(visitor string) *shop {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Sub(g.swept) > time.Minute {
		g.swept = now
		g.sweep(now.Add(-maxIdle))
	}
	s := g.shops[visitor]
	if s == nil {
		if len(g.shops) == maxShops && !g.evict() {
			return nil
		}
		if g.shops == nil {
			g.shops = map[string]*shop{}
		}
		s = newShop()
		g.shops[visitor] = s
	}
	s.touch(now)
	return s
}

// sweep forgets the shops that were left before the given time. g.mu is held.
func (g *registry) sweep(before time.Time) {
	for visitor, s := range g.shops {
		if left, idle := s.left(); idle && left.Before(before) {
			delete(g.shops, visitor)
		}
	}
}

// evict forgets the shop that was left first or, if all are watched, the one that was used first. It reports whether there
// was one in which no request runs. g.mu is held.
func (g *registry) evict() bool {
	var first, firstWatched string
	var left, used time.Time
	for visitor, s := range g.shops {
		when, idle := s.left()
		switch {
		case idle && (first == "" || when.Before(left)):
			first, left = visitor, when
		case !idle && !s.isRunning() && (firstWatched == "" || when.Before(used)):
			firstWatched, used = visitor, when
		}
	}
	if first = cmp.Or(first, firstWatched); first == "" {
		return false
	}
	g.shops[first].endStreams()
	delete(g.shops, first)
	return true
}

func (s *shop) touch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = now
}

// left returns when the shop was last used, and whether nothing runs in it and nobody looks at it.
func (s *shop) left() (when time.Time, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.active == 0 && len(s.streams) == 0
}

// isRunning reports whether a request runs in the shop.
func (s *shop) isRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active > 0
}

// endStreams ends all streams. Their readers may connect again, and then get a new shop.
func (s *shop) endStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.streams {
		delete(s.streams, stream)
		close(stream)
	}
}
