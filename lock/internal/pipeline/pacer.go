package pipeline

import "time"

const (
	maxInFlight      = 4         // batches of one queue
	minBatch         = 16        // commands: pacer.max is never less
	maxFirstBatch    = 256       // commands: pacer.max before any batch was measured
	maxBatchBytes    = 256 << 10 // of arguments and expected replies in a batch; a single command may have more
	probesPerTimeout = 10        // a silent node is probed after a tenth of the time for one operation
)

// pacer decides how many commands a batch has, which commands are too late to be sent, and when a node is silent. It is
// policy alone, with no goroutine and no lock: its queue calls every method with queue.mu held. (The queue also limits
// a batch to maxBatchBytes, and sends a command alone if go-redis has to parse its reply: see queue.nextBatch.)
//
// Several batches in flight are faster than one, and a batch has at most half of the commands that wait: if it had all
// of them, the server would be idle while the client writes, and the client while the server executes. With n commands
// waiting and m the current maximum,
//
//	batch(n) = min((n+1)/2, max(n/maxInFlight, minBatch), m)
//
// so 1 command goes alone; of 20 commands the first batch has 10 and the next 5; of 1,000 the first has 250.
//
// Under overload, excess calls fail early so that the rest succeed: a command whose reply comes after its caller has
// stopped waiting only adds load. So the maximum falls to half of a batch that takes more than a quarter of the time
// for one operation, and doubles after a full batch that takes less than a sixteenth; and a command whose reply would
// come too late is not sent.
type pacer struct {
	opTimeout time.Duration // the time for one operation

	max        int           // commands in a batch; at least minBatch
	took       time.Duration // moving average: how long a batch takes while maxInFlight are in flight
	completed  time.Time     // when such a batch last completed
	replyBytes int           // moving average: bytes in a reply
}

func newPacer(opTimeout time.Duration) pacer { return pacer{opTimeout: opTimeout, max: maxFirstBatch} }

// batch returns how many commands the next batch has when that many wait.
func (p *pacer) batch(waiting int) int {
	return min((waiting+1)/2, min(max(waiting/maxInFlight, minBatch), p.max))
}

// latestStart returns the latest start of a Call whose reply would come too late if its command were sent now. While
// nothing is in flight, no command is too late, because took may be old.
func (p *pacer) latestStart(now time.Time, inFlight int) time.Time {
	if inFlight == 0 {
		return time.Time{}
	}
	return now.Add(min(p.took, p.opTimeout/2) - p.opTimeout)
}

// replied adjusts replyBytes to a reply of that many bytes.
func (p *pacer) replied(bytes int) { p.replyBytes += (bytes - p.replyBytes) / 8 }

// adapt learns from a batch that took from start to now. The queue calls it only for batches that completed while
// maxInFlight were in flight. Inline commands count too: one slow command shows that the server is slow.
func (p *pacer) adapt(start, now time.Time, commands int) {
	p.completed = now
	took := now.Sub(start)
	p.took += (took - p.took) / 4
	switch {
	case took > p.opTimeout/4:
		p.max = min(p.max, max(commands/2, minBatch))
	case took < p.opTimeout/16 && commands == p.max:
		p.max = 2 * commands
	}
}

// reset restores the first maximum. The queue calls it when it has run empty.
func (p *pacer) reset() { p.max = maxFirstBatch }

// stalledBefore returns the cutoff for stalled batches, now that a batch that began at start is complete: batches that
// began before the cutoff count as stalled. The connection of a stalled batch may have fallen silent, and must not
// delay what other connections can send.
func (p *pacer) stalledBefore(start time.Time) time.Time {
	return start.Add(-p.opTimeout / probesPerTimeout)
}

// probeAfter returns how long a node may complete nothing before it is probed.
func (p *pacer) probeAfter() time.Duration { return p.opTimeout / probesPerTimeout }

// silent reports whether no batch has completed for probeAfter while maxInFlight were in flight, so that the node is to be
// probed.
func (p *pacer) silent(now time.Time) bool { return now.Sub(p.completed) >= p.probeAfter() }
