package pipeline

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// maxIdleRoom is the largest capacity that an empty queue keeps, in commands.
const maxIdleRoom = 1 << 10

// queue has the commands to one node, and sends those that come at the same time together, in one write and one read,
// as a group commit does. While fewer than maxInFlight batches are in flight, a command is sent at once, inline or by a
// worker. After that, commands wait in the queue, and each batch that completes makes room for the next one.
//
// Callers reach it by submit, sendInline and abandon (send.go), workers by send (worker.go). The pacer decides how many
// commands a batch has and which commands are too late.
//
// go-redis's AutoPipeline was tried and is not used: it is experimental, a queued command does not honor its caller's
// deadline, it sends whole batches again, and neither of its two forms is fast both for one caller and for many.
//
// "go test -run '^$' -bench Callers ./lock" compares the queue with the two bare commands.
type queue struct {
	pipeline *Pipeline

	mu       sync.Mutex
	waiting  []*command  // guarded by mu, as all below; not sent yet; empty unless maxInFlight batches are in flight
	inFlight []*batch    // without those that have stalled
	spare    []*batch    // empty, to be used again
	prober   *time.Timer // calls probe; nil, or set until it next fires
	pacer    pacer

	unanswered int    // commands sent, in batches that are not complete, stalled ones included
	batches    uint64 // sent; only grows
	commands   uint64 // sent; only grows
}

// batch is a group of commands that are sent together. Only its sender uses it until complete.
type batch struct {
	queue    *queue
	start    time.Time // of an inline batch, when its Call began
	commands []*command
}

func (q *queue) init(p *Pipeline) { q.pipeline, q.pacer = p, newPacer(p.config.OpTimeout) }

// submit gives c to a worker, or keeps it until fewer batches are in flight.
func (q *queue) submit(c *command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	q.dispatch()
}

// sendInline sends c in the goroutine of its caller, unless maxInFlight batches are in flight, and reports whether it
// did. That saves two goroutine switches and a timer, a quarter of the time of a claim and its settlement.
func (q *queue) sendInline(c *command, d *sharedDeadline, returnBy time.Time) bool {
	b := q.beginInline(c)
	if b == nil {
		return false
	}
	c.deadline, c.returnBy = d, returnBy
	defer q.handOver(b) // even when a hook panics
	q.pipeline.exec(c.deadline, b.commands)
	return true
}

// handOver completes a batch whose sender sends no other, and gives a worker the next one.
func (q *queue) handOver(b *batch) {
	if next := q.complete(b); next != nil {
		q.pipeline.workers.send(next) // its worker calls group.Done
		return
	}
	q.pipeline.group.Done()
}

// beginInline returns a batch of c alone, and nil if maxInFlight batches are in flight.
func (q *queue) beginInline(c *command) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.inFlight) >= maxInFlight {
		return nil
	}
	q.pipeline.group.Begin()
	b := q.newBatch(c.call.Start)
	b.commands = append(b.commands, c)
	q.begin(b)
	return b
}

// begin counts a batch that is about to be sent. The caller holds mu.
func (q *queue) begin(b *batch) {
	q.inFlight = append(q.inFlight, b)
	q.unanswered += len(b.commands)
	q.batches++
	q.commands += uint64(len(b.commands))
}

// dispatch gives commands that wait to workers, until maxInFlight batches are in flight. If commands still wait, it
// starts the prober. The caller holds mu.
func (q *queue) dispatch() {
	for len(q.inFlight) < maxInFlight {
		if !q.dispatchOne(len(q.waiting)) {
			return
		}
	}
	if len(q.waiting) > 0 && q.prober == nil {
		q.prober = time.AfterFunc(q.pacer.probeAfter(), q.probe)
	}
}

// dispatchOne gives a worker a batch of at most limit commands, and reports whether there was a command to send. The
// caller holds mu.
func (q *queue) dispatchOne(limit int) bool {
	b := q.nextBatch(limit)
	if b == nil {
		return false
	}
	q.pipeline.group.Begin()
	q.pipeline.workers.send(b)
	return true
}

// nextBatch takes a batch out of the queue, and drops commands that are too late: their callers time out by themselves,
// and learn from abandon that nothing was sent. It returns nil if no command is left to send. A batch has at most limit
// commands, at most as many as the pacer allows, and at most maxBatchBytes of arguments and expected replies. The
// caller holds mu.
func (q *queue) nextBatch(limit int) *batch {
	if len(q.waiting) == 0 {
		q.pacer.reset()
		if cap(q.waiting) > maxIdleRoom {
			q.waiting = nil
		}
		return nil
	}
	now := time.Now()
	q.waiting = slices.Delete(q.waiting, 0, q.expired(now))
	if len(q.waiting) == 0 {
		return nil
	}
	limit = min(limit, q.pacer.batch(len(q.waiting)))
	b := q.newBatch(now)
	taken := 0
	for size := 0; taken < len(q.waiting) && len(b.commands) < limit; taken++ {
		c := q.waiting[taken]
		if c.abandoned {
			continue
		}
		size += c.size() + q.pacer.replyBytes
		// go-redis looks for errors only in the first reply of a pipeline, so a command whose reply it has to parse
		// goes alone.
		if len(b.commands) > 0 && (size > maxBatchBytes || c.typed || q.waiting[0].typed) {
			break
		}
		c.sent = true
		b.commands = append(b.commands, c)
	}
	q.waiting = slices.Delete(q.waiting, 0, taken)
	q.begin(b)
	return b
}

// expired returns how many commands at the head of the queue were abandoned or can no longer be answered in time. The
// caller holds mu.
func (q *queue) expired(now time.Time) int {
	latestStart := q.pacer.latestStart(now, len(q.inFlight))
	i := slices.IndexFunc(q.waiting, func(c *command) bool { return !c.abandoned && c.call.Start.After(latestStart) })
	if i < 0 {
		return len(q.waiting)
	}
	return i
}

// newBatch returns an empty batch. The caller holds mu.
func (q *queue) newBatch(start time.Time) *batch {
	if n := len(q.spare); n > 0 {
		b := q.spare[n-1]
		q.spare = q.spare[:n-1]
		b.start = start
		return b
	}
	return &batch{queue: q, start: start}
}

// errHookEnded is the error of the commands of a batch whose worker has ended before their replies.
var errHookEnded = errors.New("a hook of the Redis client called runtime.Goexit")

// send sends b, and then the batches that complete returns. A worker calls it.
func (q *queue) send(b *batch) {
	defer func() {
		if b == nil {
			q.pipeline.group.Done()
			return
		}
		for _, c := range b.commands { // a hook has ended this goroutine
			c.err = errHookEnded
		}
		q.handOver(b)
	}()
	for b != nil {
		deadline := q.pipeline.deadlines.forStart(b.start)
		for _, c := range b.commands {
			c.deadline = deadline
		}
		q.pipeline.exec(deadline, b.commands)
		b = q.complete(b)
	}
}

// complete wakes the callers of a batch that was sent. It returns the batch that its sender is to send next, and nil if
// there is none.
func (q *queue) complete(b *batch) (next *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range b.commands {
		q.completeOne(c)
	}
	q.unanswered -= len(b.commands)
	i := slices.Index(q.inFlight, b)
	if i >= 0 {
		if len(q.inFlight) >= maxInFlight {
			q.pacer.adapt(b.start, time.Now(), len(b.commands))
			q.dropStalled(b.start)
		}
		q.inFlight = slices.DeleteFunc(q.inFlight, func(other *batch) bool { return other == b })
	}
	clear(b.commands)
	b.commands = b.commands[:0]
	if len(q.spare) < maxInFlight {
		q.spare = append(q.spare, b)
	}
	if i >= 0 && len(q.inFlight) < maxInFlight {
		next = q.nextBatch(len(q.waiting))
	}
	q.dispatch()
	return next
}

// completeOne wakes the caller of c or, if the caller has abandoned c, gives the result to the Call's Late. The caller
// holds mu.
func (q *queue) completeOne(c *command) {
	c.complete = true
	q.pacer.replied(len(c.reply.Text))
	if late := c.call.Late; c.abandoned && late != nil {
		r := Result{Reply: c.reply, Err: c.err, Unsure: c.err != nil && rediserr.MayHaveArrived(c.err)}
		q.pipeline.group.Go(func() { late.HandleLate(r) })
	}
	if c.done != nil {
		c.done <- struct{}{}
	}
}

// dropStalled stops counting batches that began more than a tenth of OpTimeout before a batch that began at start and
// is now complete. The caller holds mu.
func (q *queue) dropStalled(start time.Time) {
	stalled := q.pacer.stalledBefore(start)
	q.inFlight = slices.DeleteFunc(q.inFlight, func(b *batch) bool { return b.start.Before(stalled) })
}

// abandon marks a command whose caller stops waiting, and reports how far the command had come: one that was not sent
// never will be; one that was sent gives its result to the Call's Late; one that is complete has its result already.
func (q *queue) abandon(c *command) (sent, complete bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.abandoned = true
	return c.sent, c.complete
}

// probe sends maxInFlight single commands although enough batches are in flight, if no batch has completed for a tenth
// of OpTimeout: the connections of those batches may have fallen silent. A server that is only slow gets little more to
// do.
func (q *queue) probe() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pacer.silent(time.Now()) {
		for range maxInFlight {
			q.dispatchOne(1)
		}
	}
	q.prober = nil
	q.dispatch()
}
