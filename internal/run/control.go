package run

import (
	"errors"
	"sync"
	"time"
)

// ErrCommitted means that a key can no longer be freed: a part of the product was sent, the operation has called Keep or
// Unknown, or it has ended.
var ErrCommitted = errors.New("onceguard: the response is committed")

// Control has what an operation decides about its run. Its methods may be called concurrently. A call after the
// operation has ended comes too late to have an effect.
type Control struct {
	mu        sync.Mutex // guards the fields below
	wish      Wish
	final     bool // a part of the product was sent, or the run's transaction is committed
	ended     bool // the operation has ended: later calls are ignored
	retention time.Duration
}

// Wish is what the operation has called for its key. Sending cancels WishDiscard.
type Wish uint8

const (
	WishNothing Wish = iota
	WishKeep         // Keep was called, and Unknown not since
	WishDiscard      // Discard was called, and neither Keep nor Unknown
	WishUnknown      // Unknown was called, and Keep not since
)

// NewControl returns the Control of an operation whose record is kept for retention unless Retain is called.
func NewControl(retention time.Duration) *Control { return &Control{retention: retention} }

// Keep asks for the product to be stored, whatever the door's rule is.
func (c *Control) Keep() { c.setWish(WishKeep) }

// Unknown declares that the operation does not know whether it took effect.
func (c *Control) Unknown() { c.setWish(WishUnknown) }

func (c *Control) setWish(w Wish) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.wish = w
	}
}

// Discard asks for the key to be freed and nothing stored. It returns ErrCommitted if that comes too late.
func (c *Control) Discard() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.final || c.wish == WishKeep || c.wish == WishUnknown {
		return ErrCommitted
	}
	c.wish = WishDiscard
	return nil
}

// Retain sets how long the record is kept. A time below a millisecond is ignored.
func (c *Control) Retain(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && d >= time.Millisecond {
		c.retention = d
	}
}

// Sending is called before a part of the product is sent. It makes Discard fail from now on, and cancels an earlier
// one.
func (c *Control) Sending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.final = true
	if c.wish == WishDiscard {
		c.wish = WishNothing
	}
}

// CutOff takes the effect from later calls, which come from goroutines that the operation has left behind.
func (c *Control) CutOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// Said returns the operation's wish, whether a part of its product was sent or its transaction is committed, and how long
// its record is kept.
func (c *Control) Said() (wish Wish, final bool, retention time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wish, c.final, c.retention
}
