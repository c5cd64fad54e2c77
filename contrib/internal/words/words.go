// Package words has the values of labels and attributes that contrib/promonce and contrib/otelonce share. There are
// few, whatever clients send, so that each can be a time series.
package words

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/reread"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Other stands for a value that is not known, as in OpenTelemetry's semantic conventions.
const Other = "_OTHER"

// The buckets of histograms. A run may take 60 s by default, and a record a little more than 1 MiB.
var (
	StoreBuckets   = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	HandlerBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60}
	SizeBuckets    = []float64{128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
)

// Method returns a method that is standardized (RFC 9110 section 9, RFC 5789), and _OTHER for any other.
func Method(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return Other
}

// Route returns the path of the pattern: that of a ServeMux may begin with a method and a host.
func Route(_ context.Context, e middleware.Event) string {
	if i := strings.IndexByte(e.Pattern, '/'); i >= 0 {
		return e.Pattern[i:]
	}
	return ""
}

// classes are the words for errors, the most telling first: an Event's error may wrap several.
var classes = []struct {
	err  error
	word string
}{
	{lock.ErrLost, "lease_lost"},
	{lock.ErrForeign, "key_foreign"},
	{lock.ErrNotReplicated, "not_replicated"},
	{lock.ErrClosed, "locker_closed"},
	{keyfunc.ErrInvalid, "key_invalid"},
	{reread.ErrUsed, "body_used"},
	{run.ErrOutsideTx, "outside_transaction"},
}

// ofOutcomes are the words for errors that say no more than the outcome.
var ofOutcomes = map[middleware.Outcome]string{
	middleware.InvalidKey:     "key_invalid", // of once: a part of the Key is empty
	middleware.BodyUnreadable: "body_unreadable",
	middleware.KeyFailed:      "key_failed",
	middleware.Unknown:        "run_unknown",
	middleware.OutcomeUnknown: "earlier_run_unknown",
}

// prefixes are the errors of Redis that operators know by name.
var prefixes = []string{
	"OOM", "READONLY", "LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS",
}

// ErrorType returns the word for the error of an Event: one of about thirty. It is empty without an error, except for a
// 5xx that was stored: stored_5xx.
func ErrorType(e *middleware.Event) string {
	if e.Err == nil {
		if e.Outcome == middleware.Executed && e.Status >= http.StatusInternalServerError && e.Size > 0 {
			return "stored_5xx"
		}
		return ""
	}
	for _, c := range classes {
		if errors.Is(e.Err, c.err) {
			return c.word
		}
	}
	if e.Outcome == middleware.Unreadable { // Err may also say that Redis failed and the journal answered
		return "record_unreadable"
	}
	for _, prefix := range prefixes {
		if redis.HasErrorPrefix(e.Err, prefix) {
			return "redis_" + strings.ToLower(prefix)
		}
	}
	if word := passingError(e.Err); word != "" {
		return word
	}
	if errors.Is(e.Err, reread.ErrMaybeUsed) {
		return "body_maybe_used"
	}
	return cmp.Or(ofOutcomes[e.Outcome], Other)
}

// passingError returns the word for an error of the network or of a limit, and empty for any other.
func passingError(err error) string {
	var network net.Error
	var body *http.MaxBytesError
	switch timedOut := errors.As(err, &network) && network.Timeout(); {
	case errors.Is(err, context.Canceled): // perhaps after a network error of an earlier try
		return "canceled"
	case timedOut, errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case network != nil:
		return "network"
	case errors.As(err, &body):
		return "body_too_large"
	case errors.Is(err, lock.ErrPending):
		return "pending"
	}
	return ""
}

// Phase is a phase of an Event, with its name.
type Phase struct {
	Name string
	middleware.Phase
}

// Wait is the name of the phase in which a request waits for another one. In the others Redis or the journal is called.
const Wait = "wait"

// PhasesOf returns the phases of e but Handler, in the order of time. One that did not happen has no Start.
func PhasesOf(e *middleware.Event) [4]Phase {
	return [...]Phase{{"claim", e.Claim}, {Wait, e.Wait}, {"journal", e.Journal}, {"settle", e.Settle}}
}

// FailedPhase returns the name of the phase that failed with Event.Err. It is empty if none did: the error is the
// handler's or the client's.
func FailedPhase(e *middleware.Event) (name string) {
	switch {
	case e.Err == nil:
	case e.Pending, e.Outcome == middleware.LeaseLost:
		return "settle"
	case e.Outcome == middleware.Unprotected:
		return "claim"
	case e.Outcome == middleware.StoreUnavailable:
		for _, p := range PhasesOf(e) {
			if !p.Start.IsZero() {
				name = p.Name
			}
		}
	}
	return name
}

// Namespace returns the namespace of l, which stands before the first brace of every storage key.
func Namespace(l *lock.Locker) string {
	namespace, _, _ := strings.Cut(l.StorageKey(""), ":{")
	return strings.ToValidUTF8(namespace, "\uFFFD")
}
