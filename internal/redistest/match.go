package redistest

import (
	"slices"
	"strings"
)

// Match tells which commands a [Rule] is about. It is called once for each
// command that passes the proxy, one at a time, in the order of their arrival.
// It must not call the proxy.
type Match func(Command) bool

// Named matches the commands of these names, in any case: Named("EVALSHA",
// "EVAL") is a script however it is sent.
func Named(names ...string) Match {
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = strings.ToUpper(name)
	}
	return func(c Command) bool { return slices.Contains(names, c.Name) }
}

// Any matches every command but those that only set up a connection, which
// [Proxy.Commands] leaves out as well.
func Any() Match {
	return func(c Command) bool { return !c.setsUp() }
}

// Nth matches only the n-th of the commands that m matches, the first being 1.
// An Nth counts for itself, so each rule needs its own.
func Nth(n int, m Match) Match {
	if n < 1 {
		panic("redistest: Nth counts from 1")
	}
	seen := 0
	return func(c Command) bool {
		if m(c) {
			seen++
			return seen == n
		}
		return false
	}
}

// setsUp reports whether c belongs to the connection and not to its user.
func (c Command) setsUp() bool {
	switch c.Name {
	case "HELLO", "AUTH", "SELECT", "CLIENT", "PING", "READONLY", "READWRITE", "QUIT", "RESET":
		return true
	default:
		return false
	}
}

// confirmations is how many messages answer c, if it is a subscription command,
// else 0. Unsubscribing from everything, with no arguments, counts as one.
func (c Command) confirmations() int {
	switch c.Name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		return max(len(c.Args), 1)
	default:
		return 0
	}
}

// pushed reports whether r is no answer to a command: a RESP3 push, or what
// RESP2 sends instead on a connection that has subscribed.
func (r reply) pushed(subscribed bool) bool {
	if r.kind == '>' {
		return true
	}
	if r.kind != '*' || !subscribed {
		return false
	}
	switch r.word {
	case "message", "pmessage", "smessage",
		"subscribe", "psubscribe", "ssubscribe",
		"unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	default:
		return false
	}
}
