package run

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/internal/record"
)

// Request is a caller's request for a run under a key: the part of a Run that exists before it begins.
type Request struct {
	Key          string               // as the door has derived it
	Fingerprints []record.Fingerprint // of the input, one by each rule; the first one is stored. At least one, see record.Kind
	Traceparent  func() record.Trace  // of the operation, for its record; nil: none
	AnswerBy     time.Time            // when a caller that waits must have its answer; zero: no limit but Policy.Wait
	TooOld       bool                 // nothing may run: the key is looked up and never claimed

	// Key of the operation's context, and its value: how the operation finds its run.
	ContextKey, ContextValue any

	// Begin, Wait, Run.Start and Run.CutOff set these:
	StorageKey string // the key as it stands in Redis; may be set before, too
	Phases     Phases
	caller     context.Context // its values are the run's; its deadline counts, its cancellation does not
}

// resemblance is the result of comparing a request with a stored fingerprint.
type resemblance int

const (
	same         resemblance = iota // the fingerprint was made of the same input
	different                       // of another input
	incomparable                    // it was made by a rule that the request does not have
)

// compare compares the request with the request that stored was made of. A fingerprint of the zero Kind is the same as
// every other.
func (req *Request) compare(stored record.Fingerprint) resemblance {
	for _, f := range req.Fingerprints {
		switch {
		case f == stored, f.Kind == record.Kind{}, stored.Kind == record.Kind{}:
			return same
		case f.Kind == stored.Kind:
			return different
		}
	}
	return incomparable
}

// detached is a Request as the context of what is sent for it: it has the values of the caller's context, and never ends.
type detached Request

func (req *Request) detached() context.Context { return (*detached)(req) }

func (*detached) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*detached) Done() <-chan struct{}                   { return nil }
func (*detached) Err() error                              { return nil }
func (*detached) String() string                          { return "onceguard.detached" }

// Value hides the key by which package context finds the caller's cancellation, as context.WithoutCancel does.
func (d *detached) Value(key any) any {
	if _, ok := key.(*int); ok {
		return context.WithoutCancel(d.caller).Value(key)
	}
	return d.caller.Value(key)
}
