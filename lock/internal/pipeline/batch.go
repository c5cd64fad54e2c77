package pipeline

import "time"

// batch is a group of commands that are sent together. Only its sender uses it, until it calls complete.
type batch struct {
	start    time.Time // when it was sent
	commands []*command
}

// admits reports whether c may join b, which would then have that many bytes of arguments and expected replies.
func (b *batch) admits(c *command, bytes int) bool {
	if len(b.commands) == 0 {
		return true
	}
	return bytes <= maxBatchBytes && !c.alone && !b.commands[0].alone
}

// newBatch returns an empty batch. The caller holds mu.
func (q *queue) newBatch(start time.Time) *batch {
	if n := len(q.spare); n > 0 {
		b := q.spare[n-1]
		q.spare = q.spare[:n-1]
		b.start = start
		return b
	}
	return &batch{start: start}
}

// recycle empties b, for newBatch. The caller holds mu.
func (q *queue) recycle(b *batch) {
	clear(b.commands)
	b.commands = b.commands[:0]
	if len(q.spare) < fewInFlight {
		q.spare = append(q.spare, b)
	}
}
