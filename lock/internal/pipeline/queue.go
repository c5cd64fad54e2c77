package pipeline

import (
	"slices"
	"sync"
	"time"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// queue holds the commands to one node, and sends those that come at the same time together, in one write and one read,
// as a group commit does. A command is sent at once unless the queue is full. Otherwise commands wait, and each batch that
// completes makes room for the next one.
//
// Callers use submit and cancel; workers use sendBatches. The pacer decides how many commands a batch has
// and which commands are too late.
//
// go-redis's AutoPipeline was tried and is not used: it is experimental, a queued command does not honor its caller's
// deadline, it sends whole batches again, and neither of its two forms is fast both for one caller and for many.
//
// "go test -run '^$' -bench Callers ./lock" compares the queue with the two bare commands.
type queue struct {
	pipeline *Pipeline

	mu       sync.Mutex
	waiting  []*command  // guarded by mu, as all below; while mu is free, commands wait only if the queue is full
	inFlight []*batch    // without stalled ones, whose places are free: see removeStalled
	prober   *time.Timer // calls probe; nil if that is not scheduled
	pacer    pacer

	unanswered int    // commands sent and not complete, those of stalled batches included
	batches    uint64 // sent; only grows
	commands   uint64 // sent; only grows
}

func (q *queue) init(p *Pipeline) { q.pipeline, q.pacer = p, newPacer(p.config.OpTimeout) }

// submit gives c to a worker, or keeps it until the queue is no longer full.
func (q *queue) submit(c *command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	q.dispatch()
}

// cancel marks a command whose caller stops waiting, and returns its stage: see command.
func (q *queue) cancel(c *command) stage {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.canceled = true
	return c.stage
}

// sendBatches sends b, and then the batches that complete returns, all under one group.Begin. A worker is a goroutine
// that calls it once: a pool of goroutines whose stacks have grown was not faster.
func (q *queue) sendBatches(b *batch) {
	defer q.pipeline.group.Done()
	for b != nil {
		ctx := q.pipeline.contexts.forStart(b.start)
		for _, c := range b.commands {
			c.Context = ctx
		}
		q.pipeline.exec(ctx, b.commands)
		b = q.complete(b)
	}
}

// complete delivers the results of a batch that was sent. It returns the batch that the sender sends next, or nil if
// there is none.
func (q *queue) complete(b *batch) (next *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range b.commands {
		q.deliver(c)
	}
	hasStalled := !slices.Contains(q.inFlight, b)
	if q.full() && !hasStalled {
		q.pacer.adapt(b.start, time.Now(), len(b.commands))
		q.removeStalled(b.start)
	}
	q.unanswered -= len(b.commands)
	q.inFlight = slices.DeleteFunc(q.inFlight, func(other *batch) bool { return other == b })
	if !q.full() {
		next = q.nextBatch(largestBatch)
	}
	q.dispatch()
	return next
}

// deliver completes c: it wakes the caller or, if the caller has canceled c, gives the result to the Call's Late. The
// caller of deliver holds mu.
func (q *queue) deliver(c *command) {
	c.stage = stageComplete
	q.pacer.replied(len(c.reply.Text))
	if late := c.call.Late; c.canceled && late != nil {
		r := Result{Reply: &c.reply, Err: c.err, Unsure: c.err != nil && rediserr.MayHaveArrived(c.err)}
		q.pipeline.group.Go(func() { late.HandleLate(r) })
	}
	c.events <- completed // never blocks: there is room even if the caller has canceled c
}

// removeStalled frees the places of stalled batches. These began much earlier than start, when a batch began that is
// complete now: their connections may have fallen silent. The caller holds mu.
func (q *queue) removeStalled(start time.Time) {
	stalled := q.pacer.stalledBefore(start)
	q.inFlight = slices.DeleteFunc(q.inFlight, func(b *batch) bool { return b.start.Before(stalled) })
}

// full reports whether no further batch may be sent: at least maxInFlight batches and fewInFlight commands are in flight.
// With few callers, three batches alone would make most commands wait: over HTTP a first request goes from 0.72 to 0.90
// of the two bare commands' speed at 8 connections, from 0.77 to 0.81 at 16, and from 1.05 to 1.08 at 64. Limits of 4 and 6
// batches, and of 4, 6 and 12 commands, were not better. The caller holds mu.
func (q *queue) full() bool { return len(q.inFlight) >= maxInFlight && q.unanswered >= fewInFlight }

// dispatch gives commands that wait to workers, until the queue is full. If commands still wait, it starts the prober.
// The caller holds mu.
func (q *queue) dispatch() {
	for !q.full() && q.dispatchOne(largestBatch) {
	}
	if len(q.waiting) > 0 && q.prober == nil {
		q.prober = time.AfterFunc(q.pacer.maxSilence(), q.probe)
	}
}

// probe checks whether the node is silent. If it is, probe sends maxInFlight single commands even though the queue is
// full: the connections of the batches in flight may have broken unnoticed. To a server that is only slow, this adds
// little load.
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

// dispatchOne gives a worker a batch of at most limit commands, and reports whether there was a command to send. The
// caller holds mu.
func (q *queue) dispatchOne(limit int) bool {
	b := q.nextBatch(limit)
	if b == nil {
		return false
	}
	q.pipeline.group.Begin()
	go q.sendBatches(b)
	return true
}

// nextBatch drops commands that are too late, takes a batch of at most limit commands out of the queue, and counts it
// as in flight. It returns nil if no command is left to send. The caller holds mu.
func (q *queue) nextBatch(limit int) *batch {
	var now time.Time
	if len(q.waiting) > 0 {
		now = time.Now()
		q.dropTooLate(now)
	}
	if len(q.waiting) == 0 {
		return nil
	}
	b := &batch{start: now}
	q.fill(b, min(limit, q.pacer.batchSize(len(q.waiting))))
	q.begin(b)
	return b
}

// dropTooLate removes commands from the head of the queue, up to the first that is neither canceled nor too late. Their
// callers time out, and cancel then returns that nothing was sent. The caller holds mu.
func (q *queue) dropTooLate(now time.Time) {
	cutoff := q.pacer.tooLateCutoff(now, len(q.inFlight))
	n := slices.IndexFunc(q.waiting, func(c *command) bool { return !c.canceled && c.call.Start.After(cutoff) })
	if n < 0 {
		n = len(q.waiting)
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
}

// fill moves commands from the queue to b, in order, until b has limit commands or the next one may not join. It drops
// canceled commands. The first command that waits is not canceled, so b gets at least one. The caller holds mu.
func (q *queue) fill(b *batch, limit int) {
	done, bytes := 0, 0
	for ; done < len(q.waiting) && len(b.commands) < limit; done++ {
		c := q.waiting[done]
		if c.canceled {
			continue
		}
		bytes += c.size() + q.pacer.replyBytes
		if !b.admits(c, bytes) {
			break
		}
		b.commands = append(b.commands, c)
	}
	q.waiting = slices.Delete(q.waiting, 0, done)
}

// begin counts a batch that is about to be sent. The caller holds mu.
func (q *queue) begin(b *batch) {
	for _, c := range b.commands {
		c.stage = stageSent
	}
	q.inFlight = append(q.inFlight, b)
	q.unanswered += len(b.commands)
	q.batches++
	q.commands += uint64(len(b.commands))
}
