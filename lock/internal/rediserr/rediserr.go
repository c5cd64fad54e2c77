// Package rediserr reports what an error from go-redis means for the command that it belongs to.
package rediserr

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// IsReply reports whether err is an error that the server sent.
func IsReply(err error) bool {
	if err == nil { // errors.As would allocate
		return false
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// IsForeign reports whether the server says that the key holds another type. Redis 6 puts it into the middle of a
// script's error.
func IsForeign(err error) bool {
	return IsReply(err) && strings.Contains(err.Error(), "WRONGTYPE")
}

// MayHaveArrived reports whether a command that failed may have been executed all the same: not if Redis answered it, and
// not if there was no connection to send it on.
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

// IsTemporary reports whether the same command may succeed in a moment: after any trouble with the network, and after
// what a server says while it starts, or while another one takes its place.
func IsTemporary(err error) bool {
	if errors.Is(err, redis.ErrClosed) {
		return false
	}
	return !IsReply(err) || redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) ||
		redis.IsClusterDownError(err) || redis.IsTryAgainError(err) || redis.IsMaxClientsError(err) || IsMoved(err)
}

// RefusesWrites reports whether a server says that it takes no writes, though it can be read: it is full, or lacks
// replicas, or cannot save.
func RefusesWrites(err error) bool {
	return redis.IsOOMError(err) || redis.IsNoReplicasError(err) || redis.HasErrorPrefix(err, "MISCONF")
}

// Redirection returns the node to which err sends the command, and whether that node wants an ASKING first.
func Redirection(err error) (addr string, asking, ok bool) {
	if addr, ok := redis.IsMovedError(err); ok {
		return addr, false, true
	}
	addr, ok = redis.IsAskError(err)
	return addr, true, ok
}

// IsMoved reports whether err sends the command to another node.
func IsMoved(err error) bool {
	_, _, ok := Redirection(err)
	return ok
}

// IsTimeout reports whether a read or a write has timed out.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// InScript returns the error of a command that a script has called, if err wraps it as Redis before 7.0 does, and else
// err: there "-OOM ..." stands at the end of "ERR Error running script ...: @user_script:19: @user_script: 19: -OOM ...".
func InScript(err error) error {
	if !redis.HasErrorPrefix(err, "Error running script") {
		return err
	}
	text := err.Error()
	if i := strings.LastIndex(text, ": -"); i >= 0 {
		return scriptError(text[i+len(": -"):])
	}
	return err
}

// scriptError is an error of the server, as go-redis's own.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError marks it as a redis.Error.
func (scriptError) RedisError() {}
