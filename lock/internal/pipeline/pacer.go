package pipeline

import "time"

const (
	maxInFlight   = 3         // batches of a full queue; a queue with few commands in flight may have more: see queue.full
	fewInFlight   = 8         // commands: with fewer in flight a queue is never full
	smallBatch    = 16        // commands: pacer.max at first, and at least; a short queue still gives smaller batches
	largestBatch  = 2048      // commands: pacer.max at most; maxBatchBytes are about 1,800 of the shortest claims
	maxBatchBytes = 256 << 10 // of arguments and expected replies in a batch; a single command may have more

	silenceDivisor = 10 // a node or connection may be silent for OpTimeout/silenceDivisor: see maxSilence
)

// pacer decides how many commands a batch has, which commands are too late to be sent, and when a node is silent. It
// has no goroutine and no mutex: its queue calls every method with queue.mu held. (The queue also limits a batch to
// maxBatchBytes, and sends some commands alone: see batch.admits.)
//
// Several batches in flight are faster than one: with a single one, the server is idle while the client writes, and the
// client while the server executes. So a batch has at most three quarters of the commands that wait, rounded up. With n
// commands waiting,
//
//	batchSize(n) = min((3*n+3)/4, max(n/maxInFlight, smallBatch), pacer.max)
//
// so 1 command goes alone; of 20 the first batch has 15 and the next 4; of 999 the first has 333 once max has grown.
//
// A command whose reply comes after its caller has stopped waiting only adds load. So under overload, commands that
// would be answered too late are dropped, and their callers time out, so that the others are answered in time. A batch
// that takes more than a quarter of OpTimeout lowers pacer.max to half of its size, and a full batch that takes less than
// an eighth doubles it. With a fixed limit half as many calls are answered by a server that is overloaded or far, or almost
// none: TestLoad of package lock.
type pacer struct {
	opTimeout time.Duration

	max        int           // commands in a batch; from smallBatch to largestBatch
	took       time.Duration // moving average: how long a batch takes while the queue is full
	completed  time.Time     // when such a batch last completed
	replyBytes int           // moving average: bytes in a reply
}

func newPacer(opTimeout time.Duration) pacer { return pacer{opTimeout: opTimeout, max: smallBatch} }

// batchSize returns the size of the next batch while that many commands wait.
func (p *pacer) batchSize(waiting int) int {
	return min((3*waiting+3)/4, max(waiting/maxInFlight, smallBatch), p.max)
}

// tooLateCutoff returns the latest start of a Call that is too late: the reply to its command, sent now, would come
// after its OpTimeout. While nothing is in flight, no command is too late, because took may be old.
func (p *pacer) tooLateCutoff(now time.Time, inFlight int) time.Time {
	if inFlight == 0 {
		return time.Time{}
	}
	return now.Add(min(p.took, p.opTimeout/2) - p.opTimeout)
}

// replied adjusts replyBytes to a reply of that many bytes.
func (p *pacer) replied(bytes int) { p.replyBytes += (bytes - p.replyBytes) / 8 }

// adapt adjusts took and max to a batch that took from start to now. The queue calls it only for batches that completed
// while it was full. One slow command shows that the server is slow, and lowers max to smallBatch.
func (p *pacer) adapt(start, now time.Time, commands int) {
	p.completed = now
	elapsed := now.Sub(start)
	p.took += (elapsed - p.took) / 4
	switch {
	case elapsed > p.opTimeout/4:
		p.max = min(p.max, max(commands/2, smallBatch))
	case elapsed < p.opTimeout/8 && commands == p.max:
		p.max = min(2*commands, largestBatch)
	}
}

// maxSilence is how long a node may complete no batch before the queue probes it. A batch that began more than
// maxSilence before one that is complete counts as stalled.
func (p *pacer) maxSilence() time.Duration { return p.opTimeout / silenceDivisor }

// stalledBefore returns the time before which a stalled batch began, given that a batch that began at start is
// complete: maxSilence before start. The connection of a stalled batch may have fallen silent, and must not delay what
// other connections can send.
func (p *pacer) stalledBefore(start time.Time) time.Time { return start.Add(-p.maxSilence()) }

// silent reports whether no batch has completed for maxSilence while the queue was full: the node should be probed.
func (p *pacer) silent(now time.Time) bool { return now.Sub(p.completed) >= p.maxSilence() }
