// Package rediserr reports what an error from go-redis means for the command that failed with it. It has no state.
package rediserr

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Reply is an error that the server sent. go-redis's functions treat it as one of their errors.
type Reply string

// Error returns the text as the server sent it.
func (r Reply) Error() string { return string(r) }

// RedisError marks it as a redis.Error.
func (Reply) RedisError() {}

// IsReply reports whether err is an error that the server sent.
func IsReply(err error) bool {
	if err == nil { // avoids the allocation of errors.As
		return false
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// IsForeign reports whether err is the server's error for a key that holds another type. Redis 6 has WRONGTYPE in the
// middle of a script's error.
func IsForeign(err error) bool {
	return IsReply(err) && strings.Contains(err.Error(), "WRONGTYPE")
}

// MayHaveArrived reports whether the server may have executed a command that failed with err. It has not executed the
// command if it replied with an error, or if there was no connection to send the command on. (A script can fail half
// way, but in the scripts of package store nothing can fail once the key is written.)
func MayHaveArrived(err error) bool {
	var dial *net.OpError
	switch {
	case IsReply(err):
		return false
	case errors.As(err, &dial) && dial.Op == "dial":
		return false
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return false
	}
	return true
}

// IsTemporary reports whether the same command may succeed if it is sent again soon. It may after any error but a reply
// (except ErrClosed), and after LOADING, READONLY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, MOVED, ASK and too many clients.
func IsTemporary(err error) bool {
	switch {
	case errors.Is(err, redis.ErrClosed): // the client, for good
		return false
	case !IsReply(err):
		return true
	}
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) ||
		redis.IsClusterDownError(err) || redis.IsTryAgainError(err) || redis.IsMaxClientsError(err) || IsRedirection(err)
}

// RefusesWrites reports whether err means that the server can be read but not written: it is full, has too few
// replicas, or cannot save to disk.
func RefusesWrites(err error) bool {
	return redis.IsOOMError(err) || redis.IsNoReplicasError(err) || redis.HasErrorPrefix(err, "MISCONF")
}

// Redirection returns the address of the node to which err redirects the command (MOVED or ASK). ok is false if err is
// not a redirection.
func Redirection(err error) (addr string, ok bool) {
	if addr, ok = redis.IsMovedError(err); ok {
		return addr, true
	}
	return redis.IsAskError(err)
}

// IsRedirection reports whether err is a redirection: MOVED or ASK.
func IsRedirection(err error) bool {
	_, ok := Redirection(err)
	return ok
}

// IsTimeout reports whether err means that a read or a write timed out.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// InScript returns the error of the command that a script called, if err contains one, and otherwise err. Redis before
// 7.0 puts it at the end of the script's error: "ERR Error running script ...: @user_script:19: @user_script: 19: -OOM
// ...".
func InScript(err error) error {
	if !redis.HasErrorPrefix(err, "Error running script") {
		return err
	}
	text := err.Error()
	if i := strings.LastIndex(text, ": -"); i >= 0 {
		return Reply(text[i+len(": -"):])
	}
	return err
}
