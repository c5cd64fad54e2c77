package pipeline

import "time"

const (
	maxInFlight    = 4         // batches
	minBatch       = 16        // commands: a batch may always have so many
	maxFirstBatch  = 256       // commands, until it is known how long so many take
	maxBatchBytes  = 256 << 10 // of arguments and replies, but for a single command
	probesPerLimit = 10        // a silent node is probed after a tenth of the time for one operation
)

// pacer decides how many commands go together, which are too late to be sent, and when a node is silent. It is policy
// alone: it has no goroutine and no lock, and its queue calls it with mu held.
//
// Several batches in flight beat one, and a batch takes only half of those who wait: with a batch of everybody, client and
// server would take turns. With n commands waiting, and max learned from how long batches take,
//
//	batch(n) = min((n+1)/2, max(n/4, 16), max)
//
// so 1 command goes alone, of 20 the first batch takes 10 and the next 5, and of 1,000 it takes 250.
//
// Under overload, excess calls fail early so that the rest succeed: it does not help to send more, for a command that
// takes longer than its caller waits is work for nobody. So a batch that takes a quarter of the time for one operation
// halves the maximum, and a command whose reply would come too late is not sent.
type pacer struct {
	limit time.Duration // for one operation

	max        int           // commands in a batch; at least minBatch
	took       time.Duration // about how long a batch takes
	completed  time.Time     // when one was complete the last time
	replyBytes int           // about how many a reply has
}

func newPacer(limit time.Duration) pacer { return pacer{limit: limit, max: maxFirstBatch} }

// batch returns how many of the commands that wait are to go together.
func (p *pacer) batch(waiting int) int {
	return min((waiting+1)/2, min(max(waiting/maxInFlight, minBatch), p.max))
}

// tooLate returns the start of the youngest call whose reply would come too late if its command were sent now. While
// nothing is in flight nobody is too late: took may be of long ago.
func (p *pacer) tooLate(now time.Time, inFlight int) time.Time {
	if inFlight == 0 {
		return time.Time{}
	}
	return now.Add(min(p.took, p.limit/2) - p.limit)
}

// replied takes the length of a reply into account.
func (p *pacer) replied(bytes int) { p.replyBytes += (bytes - p.replyBytes) / 8 }

// adapt learns from a batch that was complete at now while no other could begin.
func (p *pacer) adapt(start, now time.Time, commands int) {
	p.completed = now
	took := now.Sub(start)
	p.took += (took - p.took) / 4
	switch {
	case took > p.limit/4:
		p.max = min(p.max, max(commands/2, minBatch))
	case took < p.limit/16 && commands == p.max:
		p.max = 2 * commands
	}
}

// calm forgets what was learned under load.
func (p *pacer) calm() { p.max = maxFirstBatch }

// stalledBefore returns until when a batch must have begun to be stalled, if one that began at start is complete: its
// connection may have fallen silent, and must not hold up what can go by others.
func (p *pacer) stalledBefore(start time.Time) time.Time { return start.Add(-p.limit / probesPerLimit) }

// probeAfter is how long nothing must have been complete for the node to be probed.
func (p *pacer) probeAfter() time.Duration { return p.limit / probesPerLimit }

// silent reports whether the node has to be probed.
func (p *pacer) silent(now time.Time) bool { return now.Sub(p.completed) >= p.probeAfter() }
