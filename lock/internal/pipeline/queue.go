package pipeline

import (
	"slices"
	"sync"
	"time"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// maxIdleRoom is how many places an empty queue keeps.
const maxIdleRoom = 1 << 10

// queue holds the commands to one node that are not sent yet, and sends those that come at the same time together, in one
// write and one read, as a group commit does. While fewer than maxInFlight batches are in flight a command is sent at
// once; what comes later goes with the next batch.
//
// go-redis's own AutoPipeline is not used: it is experimental, a queued command does not heed its caller's deadline, whole
// batches are sent again, and neither of its two forms is as fast for one caller and for many.
//
// "go test -run '^$' -bench Callers ./lock" compares it with the two bare commands.
type queue struct {
	pipeline *Pipeline

	mu       sync.Mutex
	waiting  []*command  // not sent yet; if there are any, maxInFlight batches are in flight
	inFlight []*batch    // but for those that are stalled
	spare    []*batch    // to be used again
	prober   *time.Timer // runs while there is a queue; nil otherwise
	pacer    pacer
}

// batch is a group of commands that are sent together.
type batch struct {
	queue    *queue
	start    time.Time
	commands []*command
}

func (q *queue) init(p *Pipeline) { q.pipeline, q.pacer = p, newPacer(p.config.OpTimeout) }

// submit sends c, or lets it wait for a batch.
func (q *queue) submit(c *command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	q.dispatch()
}

// sendInline sends c in the goroutine of its caller, unless enough batches are in flight. That saves two switches between
// goroutines and a timer: 1.5 of 6.0 µs for a claim and its settlement.
func (q *queue) sendInline(c *command, d *deadline, until time.Time) bool {
	b := q.beginInline(c)
	if b == nil {
		return false
	}
	c.deadline, c.until = d, until
	defer func() { // even when a hook panics
		if next := q.complete(b); next != nil {
			q.pipeline.workers.send(next)
			return
		}
		q.pipeline.group.Done()
	}()
	q.pipeline.exec(c.deadline, b.commands)
	return true
}

// beginInline returns a batch of c alone, nil if others have to go first.
func (q *queue) beginInline(c *command) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.inFlight) >= maxInFlight {
		return nil
	}
	q.pipeline.group.Begin()
	b := q.newBatch(c.call.Start)
	b.commands = append(b.commands, c)
	q.inFlight = append(q.inFlight, b)
	return b
}

// dispatch sends what waits as far as that may be. The caller holds mu.
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

// dispatchOne gives a worker a batch of at most so many, and reports whether there was one. The caller holds mu.
func (q *queue) dispatchOne(most int) bool {
	b := q.next(most)
	if b == nil {
		return false
	}
	q.pipeline.group.Begin()
	q.pipeline.workers.send(b)
	return true
}

// next takes a batch of at most so many out of the queue, nil if nothing waits there. The caller holds mu.
func (q *queue) next(most int) *batch {
	if len(q.waiting) == 0 {
		q.pacer.calm()
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
	most = min(most, q.pacer.batch(len(q.waiting)))
	b := q.newBatch(now)
	taken := 0
	for size := 0; taken < len(q.waiting) && len(b.commands) < most; taken++ {
		c := q.waiting[taken]
		if c.abandoned {
			continue
		}
		size += c.size() + q.pacer.replyBytes
		// go-redis looks for errors in the first reply only, so one that it has to read goes alone.
		if taken > 0 && (size > maxBatchBytes || c.typed || q.waiting[0].typed) {
			break
		}
		c.sent = true
		b.commands = append(b.commands, c)
	}
	q.waiting = slices.Delete(q.waiting, 0, taken)
	q.inFlight = append(q.inFlight, b)
	return b
}

// expired returns how many commands at the head of the queue can no longer be answered in time, or were abandoned. The
// caller holds mu.
func (q *queue) expired(now time.Time) int {
	tooLate := q.pacer.tooLate(now, len(q.inFlight))
	i := slices.IndexFunc(q.waiting, func(c *command) bool { return !c.abandoned && c.call.Start.After(tooLate) })
	if i < 0 {
		return len(q.waiting)
	}
	return i
}

// newBatch returns an empty batch that begins at start. The caller holds mu.
func (q *queue) newBatch(start time.Time) *batch {
	if n := len(q.spare); n > 0 {
		b := q.spare[n-1]
		q.spare = q.spare[:n-1]
		b.start = start
		return b
	}
	return &batch{queue: q, start: start}
}

// send sends one batch after the other while there are any. A worker calls it.
func (q *queue) send(b *batch) {
	defer q.pipeline.group.Done()
	for b != nil {
		deadline := q.pipeline.deadlines.at(b.start)
		for _, c := range b.commands {
			c.deadline = deadline
		}
		q.pipeline.exec(deadline, b.commands)
		b = q.complete(b)
	}
}

// complete lets the callers go on, and returns the next batch if this one's sender may go on with one.
func (q *queue) complete(b *batch) (next *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range b.commands {
		q.completeOne(c)
	}
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
		next = q.next(len(q.waiting))
	}
	q.dispatch()
	return next
}

// completeOne tells the caller of c that its result is there, or its Late if it has abandoned it. The caller holds mu.
func (q *queue) completeOne(c *command) {
	c.complete = true
	q.pacer.replied(len(c.reply.Text))
	if late := c.call.Late; c.abandoned && late != nil {
		r := Result{Reply: c.reply, Err: c.err, Unsure: c.err != nil && rediserr.MayHaveArrived(c.err)}
		q.pipeline.group.Go(func() { late.Late(r) })
	}
	if c.done != nil {
		c.done <- struct{}{}
	}
}

// dropStalled counts those batches no longer that began a good while before one that began at start and is complete. The
// caller holds mu.
func (q *queue) dropStalled(start time.Time) {
	stalled := q.pacer.stalledBefore(start)
	q.inFlight = slices.DeleteFunc(q.inFlight, func(b *batch) bool { return b.start.Before(stalled) })
}

// abandon takes back a command that its caller does not wait for any more: it is never sent or, if it was, the Call's Late
// gets its result. The result of one that is complete counts.
func (q *queue) abandon(c *command) (sent, complete bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.abandoned = true
	return c.sent, c.complete
}

// probe sends some commands although enough batches are in flight, if none was complete for a while: their connections may
// have fallen silent. If it is the server that is slow, it does not get much more to do.
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
