package redistest

import (
	"slices"
	"strings"
)

// Match reports whether a [Rule] applies to a command. The proxy calls it once for each command, in the order of
// arrival and never concurrently. It must not call the proxy.
type Match func(Command) bool

// Named matches the commands with these names, in any case. Named("EVALSHA", "EVAL") matches every call of a script.
func Named(names ...string) Match {
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = strings.ToUpper(name)
	}
	return func(c Command) bool { return slices.Contains(names, c.Name) }
}

// Any matches every command except those that set up a connection, which [Proxy.Commands] leaves out too.
func Any() Match {
	return func(c Command) bool { return !c.setsUp() }
}

// Nth matches only the n-th command that m matches, counting from 1. Each rule needs a new Nth, because an Nth
// keeps the count.
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

// setsUp reports whether c is about the connection and not about data.
func (c Command) setsUp() bool {
	switch c.Name {
	case "HELLO", "AUTH", "SELECT", "CLIENT", "PING", "READONLY", "READWRITE", "QUIT", "RESET":
		return true
	default:
		return false
	}
}

// confirmations returns the number of messages that answer a subscription command, or 0 for another command. It is 1
// without arguments, which unsubscribes from everything.
func (c Command) confirmations() int {
	if !strings.HasSuffix(c.Name, "SUBSCRIBE") {
		return 0
	}
	return max(len(c.Args), 1)
}

// pushed reports whether the server sent r unasked: a RESP3 push, or its RESP2 form on a connection with subscriptions.
func (r reply) pushed(subscribed bool) bool {
	about := strings.HasSuffix(r.word, "message") || strings.HasSuffix(r.word, "subscribe")
	return r.kind == '>' || r.kind == '*' && subscribed && about
}
