package lock

import (
	"slices"
	"sync"
	"time"
)

// batcher lets commands to one node that are sent at the same time travel together, in one write and one read, as a
// group commit does. Whoever finds fewer than maxFlights under way sends at once, itself if it may; whoever comes while
// they are goes with the next one that returns.
//
// Several flights beat one, and a batch takes only half of those who wait: with a batch of everybody, client and server
// would take turns. go-redis's own AutoPipeline is not used: it is experimental, a queued command does not heed its
// caller's deadline, whole batches are sent again, and none of its two forms is as fast for one caller and for many.
//
// Under more load than a server can bear it does not help to send more: whatever is under way for longer than a caller
// waits is work for nobody. So a batch is halved that takes a quarter of the time for one operation, and those whose
// answer would come too late are not sent (see leading). TestLoad shows what comes of it.
//
// "go test -run '^$' -bench Callers ./lock" compares it with the two bare commands.
type batcher struct {
	locker *Locker

	mu      sync.Mutex
	queue   []*command    // not sent yet; if there are any, maxFlights are under way
	flights []*flight     // under way, but for those that were overtaken
	spare   []*flight     // to be used again
	patrol  *time.Timer   // runs while there is a queue, see probe; nil otherwise
	landed  time.Time     // the last time
	took    time.Duration // about how long a flight takes
	most    int           // commands in a flight, or it takes too long; not below maxBatch
	replies int           // about how many bytes a reply has
}

const (
	maxFlights = 4
	maxBatch   = 16        // commands, unless more wait than all flights together would take
	maxAtFirst = 256       // even then, until it is known how long that takes
	maxBytes   = 256 << 10 // of arguments and replies, but for a single command
	maxArgs    = 9         // of a command; claim.lua's with a fence has the most
	maxKept    = 1 << 10   // places in an empty queue
)

func (b *batcher) init(l *Locker) { b.locker, b.most = l, maxAtFirst }

// flight is a batch under way.
type flight struct {
	batcher  *batcher
	start    time.Time
	commands []*command
}

// command is one command on its way, and what came of it. It is also the context that it is sent under: it has the
// values of its caller's. It ends some time after no caller waits any more, or when its caller has to return who sends it
// itself.
type command struct {
	*term
	until time.Time // if its caller sends it: when that has to return
	trip  *trip     // that it is a part of; its key decides to which node it goes
	args  []any
	room  [maxArgs]any // where they are, as a rule
	typed bool         // to be read by go-redis

	durable bool   // to be acknowledged by replicas
	addr    string // where it is to be sent, if another node has said so
	asking  bool   // with ASKING before it

	done  chan struct{} // receives when the next three are there; nil if the caller sends it itself
	reply reply
	acked error // that too few replicas have it, see WithReplicas
	err   error

	// guarded by batcher.mu
	flown  bool
	landed bool
	gone   bool // the caller has left
}

func (c *command) Deadline() (time.Time, bool) {
	if c.until.IsZero() {
		return c.term.Deadline()
	}
	return c.until, true
}

// Value lets hooks of go-redis see what the caller's context has.
func (c *command) Value(key any) any { return c.trip.ctx.Value(key) }

// size is about how many bytes it sends.
func (c *command) size() (n int) {
	for _, arg := range c.args {
		switch arg := arg.(type) {
		case string:
			n += len(arg)
		case []byte:
			n += len(arg)
		case *text:
			n += len(*arg)
		}
	}
	return n
}

// submit sends c, or lets it wait for a flight.
func (b *batcher) submit(c *command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, c)
	b.launch()
}

// flyHere sends c in the goroutine of its caller, if it need not wait for others. That saves two switches between
// goroutines and a timer: claim and settlement took 6.0 µs with pilots, and take 4.5 without ("go test -run '^$' -bench
// Trip -cpu 1 ./lock").
func (b *batcher) flyHere(c *command) bool {
	f := b.start(c)
	if f == nil {
		return false
	}
	defer func() { // also when a hook panics
		if next := b.land(f); next != nil {
			b.locker.crew.fly(next)
			return
		}
		b.locker.work.done()
	}()
	b.locker.carry(c.term, f.commands)
	return true
}

// start returns a flight with c alone, nil if others are to go first.
func (b *batcher) start(c *command) *flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.flights) >= maxFlights {
		return nil
	}
	b.locker.work.begin()
	f := b.newFlight(c.trip.start)
	f.commands = append(f.commands, c)
	b.flights = append(b.flights, f)
	return f
}

// launch sends what waits if it may. The caller holds mu.
func (b *batcher) launch() {
	for len(b.flights) < maxFlights {
		if !b.launchOne(len(b.queue)) {
			return
		}
	}
	if len(b.queue) > 0 && b.patrol == nil {
		b.patrol = time.AfterFunc(b.locker.opTimeout/10, b.probe)
	}
}

// launchOne sends a batch of at most so many, and tells whether anybody waits for one. The caller holds mu.
func (b *batcher) launchOne(most int) bool {
	f := b.next(most)
	if f == nil {
		return false
	}
	b.locker.work.begin()
	b.locker.crew.fly(f)
	return true
}

// next takes a batch of at most so many from the queue, nil if nobody waits there. The caller holds mu.
func (b *batcher) next(most int) *flight {
	if len(b.queue) == 0 {
		b.most = maxAtFirst // the load is over
		if cap(b.queue) > maxKept {
			b.queue = nil
		}
		return nil
	}
	now := time.Now()
	b.queue = slices.Delete(b.queue, 0, b.leading(now))
	if len(b.queue) == 0 {
		return nil
	}
	most = min(most, b.batch())
	f := b.newFlight(now)
	taken := 0
	for size := 0; taken < len(b.queue) && len(f.commands) < most; taken++ {
		c := b.queue[taken]
		if c.gone {
			continue
		}
		size += c.size() + b.replies
		if taken > 0 && (size > maxBytes || c.typed || b.queue[0].typed) { // go-redis looks at the first reply only
			break
		}
		c.flown = true
		f.commands = append(f.commands, c)
	}
	b.queue = slices.Delete(b.queue, 0, taken)
	b.flights = append(b.flights, f)
	return f
}

// batch is how many commands are to go together. The caller holds mu.
func (b *batcher) batch() int {
	n := len(b.queue)
	return min((n+1)/2, min(max(n/maxFlights, maxBatch), b.most))
}

// leading returns how many at the head of the queue are not to be sent: their callers have left, or will have by the
// time of an answer. Under more load than the server can bear, all its work would else be for callers who are gone. The
// caller holds mu.
func (b *batcher) leading(now time.Time) int {
	var latest time.Time
	if len(b.flights) > 0 { // or else took may be of long ago
		latest = now.Add(min(b.took, b.locker.opTimeout/2) - b.locker.opTimeout)
	}
	i := slices.IndexFunc(b.queue, func(c *command) bool { return !c.gone && c.trip.start.After(latest) })
	if i < 0 {
		return len(b.queue)
	}
	return i
}

// newFlight returns an empty flight that begins at start. The caller holds mu.
func (b *batcher) newFlight(start time.Time) *flight {
	if n := len(b.spare); n > 0 {
		f := b.spare[n-1]
		b.spare = b.spare[:n-1]
		f.start = start
		return f
	}
	return &flight{batcher: b, start: start}
}

// fly sends one batch after the other while there are any.
func (b *batcher) fly(f *flight) {
	defer b.locker.work.done()
	for f != nil {
		term := b.locker.terms.at(f.start)
		for _, c := range f.commands {
			c.term = term
		}
		b.locker.carry(term, f.commands)
		f = b.land(f)
	}
}

// land lets the callers go on, and returns the next batch if this flight may go on with one.
func (b *batcher) land(f *flight) (next *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range f.commands {
		c.landed = true
		b.replies += (len(c.reply.text) - b.replies) / 8
		if late := c.trip.late; c.gone && late != nil {
			a := answer{reply: c.reply, err: c.err, unsure: c.err != nil && mayHaveArrived(c.err)}
			b.locker.work.run(func() { late(c.trip, a) })
		}
		if c.done != nil {
			c.done <- struct{}{}
		}
	}
	i := slices.Index(b.flights, f)
	if i >= 0 { // it was not overtaken
		if len(b.flights) >= maxFlights {
			b.learn(f)
		}
		b.flights = slices.DeleteFunc(b.flights, func(other *flight) bool { return other == f })
	}
	clear(f.commands)
	f.commands = f.commands[:0]
	if len(b.spare) < maxFlights {
		b.spare = append(b.spare, f)
	}
	if i >= 0 && len(b.flights) < maxFlights {
		next = b.next(len(b.queue))
	}
	b.launch()
	return next
}

// learn draws conclusions from a flight that is back while no other may begin. The caller holds mu.
func (b *batcher) learn(f *flight) {
	b.landed = time.Now()
	took, n, limit := b.landed.Sub(f.start), len(f.commands), b.locker.opTimeout
	b.took += (took - b.took) / 4
	switch {
	case took > limit/4:
		b.most = min(b.most, max(n/2, maxBatch))
	case took < limit/16 && n == b.most:
		b.most = 2 * n
	}
	// Those that began a good while before it should be back too. Their connections may have fallen silent, and must
	// not hold up what can go by others.
	overtaken := f.start.Add(-limit / 10)
	b.flights = slices.DeleteFunc(b.flights, func(f *flight) bool { return f.start.Before(overtaken) })
}

// leave takes back a command that its caller does not wait for any more: it is never sent, or if it was, the trip's
// late is told what came of it. One that has landed meanwhile counts.
func (b *batcher) leave(c *command) (flown, landed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.gone = true
	return c.flown, c.landed
}

// probe sends some commands although enough are under way, if none of those has come back for a while: their connections
// may have fallen silent. If it is the server that is slow, it does not get much more to do.
func (b *batcher) probe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.landed) >= b.locker.opTimeout/10 {
		for range maxFlights {
			b.launchOne(1)
		}
	}
	b.patrol = nil
	b.launch()
}
