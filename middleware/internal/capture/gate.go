package capture

import "sync"

// gate lets one goroutine at a time into the Writer. Finish and Abort close it: then only the serving goroutine may use
// the Writer.
//
// A goroutine of the handler holds mu from enter to leave, but not during a call to the underlying writer, which lasts
// until a slow client has read. Then inCall keeps the other goroutines out, and the serving goroutine can still close
// the gate. A goroutine that finds the gate closed after such a call is cut off: see call.
type gate struct {
	mu         sync.Mutex
	idle       sync.Cond // signaled when inCall becomes false; its L is mu
	inCall     bool      // a goroutine is in a call to the underlying writer
	closed     bool      // set only by the serving goroutine, which can read it without mu
	leftInCall bool      // a goroutine was in such a call when the gate was closed; never false again
}

// enter takes mu when no other goroutine is in a call to the underlying writer. leave releases it.
func (g *gate) enter() {
	g.mu.Lock()
	for g.inCall {
		g.idle.Wait()
	}
}

func (g *gate) leave() { g.mu.Unlock() }

// call makes a call to the underlying writer. It unlocks mu for that time, and locks it again. cutOff reports whether
// the gate was closed meanwhile: then the Writer is the serving goroutine's, and the caller must not touch it. So the
// caller makes its changes to the Writer before. The serving goroutine, which has closed the gate, needs no lock.
func (g *gate) call(underlying func()) (cutOff bool) {
	if g.closed { // others find the gate open, or return early
		underlying()
		return false
	}
	g.inCall = true
	g.mu.Unlock()
	defer func() { // also if the underlying writer panics
		g.mu.Lock()
		g.inCall, cutOff = false, g.closed
		g.idle.Broadcast()
	}()
	underlying()
	return cutOff // set by the deferred function
}

// isClosed reports to a goroutine that has not entered whether the gate is closed.
func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// close shuts out all goroutines but the caller's. It does not wait for one that is in a call to the underlying writer.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.leftInCall = true, g.leftInCall || g.inCall
}

// drain waits, after close, until no goroutine is in a call to the underlying writer.
func (g *gate) drain() {
	if g.leftInCall {
		g.enter()
		defer g.leave()
	}
}
