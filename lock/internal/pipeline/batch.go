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
