package otelonce

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// The values of attributes that are labels of metrics: few, whatever clients send.

// other is what the semantic conventions have for a value that is not known.
const other = "_OTHER"

// methodOf returns a method that is standardized (RFC 9110 section 9, RFC 5789), and _OTHER for any other.
func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return other
}

// patternRoute returns the path of the pattern: that of a ServeMux may begin with a method and a host.
func patternRoute(_ context.Context, e middleware.Event) string {
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
	{keyfunc.ErrMissing, "key_missing"},
	{keyfunc.ErrNoUser, "user_unknown"},
}

// prefixes are the errors of Redis that operators know by name.
var prefixes = map[string]string{
	"OOM": "redis_oom", "READONLY": "redis_readonly", "LOADING": "redis_loading", "BUSY": "redis_busy",
	"CLUSTERDOWN": "redis_clusterdown", "MASTERDOWN": "redis_masterdown", "TRYAGAIN": "redis_tryagain",
	"MISCONF": "redis_misconf", "NOAUTH": "redis_noauth", "NOPERM": "redis_noperm", "NOREPLICAS": "redis_noreplicas",
}

// classOf returns the error.type of an Event, "" without an error.
func classOf(err error) string {
	if err == nil {
		return ""
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.word
		}
	}
	for prefix, word := range prefixes {
		if redis.HasErrorPrefix(err, prefix) {
			return word
		}
	}
	var network net.Error
	var body *http.MaxBytesError
	switch timedOut := errors.As(err, &network) && network.Timeout(); {
	case timedOut, errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case network != nil:
		return "network"
	case errors.As(err, &body):
		return "body_too_large"
	case errors.Is(err, lock.ErrPending):
		return "pending"
	}
	return other
}
