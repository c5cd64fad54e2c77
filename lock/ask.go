package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxTries is how often a command is sent at the most, within its time limit.
const maxTries = 4

// answer is what came of asking Redis.
type answer struct {
	reply
	unsure  bool  // some try may have arrived although its reply did not
	foreign bool  // err is the server's, and says that the key holds another type
	err     error // none of the tries was answered, or the answer is an error
}

// wrap returns the answer's error, with what was tried.
func (a answer) wrap(doing string) error {
	if a.err == nil {
		return nil
	}
	return fmt.Errorf("lock: %s: %w", doing, a.err)
}

// errNoAnswer is the error of an operation whose time was up.
type errNoAnswer time.Duration

func (e errNoAnswer) Error() string {
	return "no answer from Redis within " + time.Duration(e).String()
}

func (e errNoAnswer) Unwrap() error { return context.DeadlineExceeded }

// trip is one operation on a key: all that is sent until there is an answer, within the time for that. It is one
// allocation, with room for what most operations send, and not used again: hooks may keep a command's context.
type trip struct {
	locker  *Locker
	ctx     context.Context // of the caller
	key     storageKey
	late    func(*trip, answer) // gets an answer that comes when ask has returned; nil if nobody wants it
	here    bool                // its caller may send the first command by itself
	start   time.Time           // of asking, or of an earlier trip that this one goes on with
	seat    *seat               // nil until it has to wait
	expired bool                // the time is up

	claim  claimText // to be written, or acted on
	stored text      // to be left behind
	ttl    text      // for that long, in milliseconds
	first  command
	room   [notePos + 64]byte // for the texts: a claim with the note of a request has it, and a head with a time
}

func (l *Locker) newTrip(ctx context.Context, key storageKey) *trip {
	return &trip{locker: l, ctx: ctx, key: key}
}

// ask calls do until Redis has answered, a few times at the most, and returns within the time for one operation, or
// when the trip's context is done.
func (t *trip) ask(do func(*trip) (reply, error)) (a answer) {
	if t.start.IsZero() {
		t.start = time.Now()
	}
	defer t.stand()
	for n := 1; ; n++ {
		var err error
		if a.reply, err = do(t); err == nil {
			if !t.locker.answered.Load() {
				t.locker.answered.Store(true)
			}
			return a
		}
		var left *leftError
		if errors.As(err, &left) {
			return answer{unsure: a.unsure || left.sent, err: left.cause}
		}
		a.unsure = a.unsure || mayHaveArrived(err)
		if n == maxTries || !mayPass(err) {
			a.err, a.foreign = err, isForeign(err)
			return a
		}
		if cause := t.pause(jitter(10 * time.Millisecond << n)); cause != nil {
			a.err = fmt.Errorf("%w: %w", cause, err)
			return a
		}
	}
}

// leftError says that the caller did not wait for what it has sent, or not even for its turn to be sent. Its text is not
// the cause's: go-redis tells some of a server's errors by their text, and a cause may be such an error of another call.
type leftError struct {
	cause error
	sent  bool
}

func (e *leftError) Error() string { return "the caller has left" }

// command returns the trip's next command. Its arguments are those given, one list behind the other.
func (t *trip) command(durable bool, prefix []any, args ...any) *command {
	c := &t.first
	if c.trip != nil {
		c = new(command)
	}
	c.trip, c.durable = t, durable
	c.args = append(append(c.room[:0], prefix...), args...)
	return c
}

// send sends a command once, and waits for what comes of it. If it is a durable one, acked is nil if what it wrote, if
// anything, has reached the replicas.
func (t *trip) send(c *command) (r reply, acked, err error) {
	r, acked, err = t.exchange(c)
	if err == nil {
		return r, acked, nil
	}
	again := command{trip: t, args: c.args, durable: c.durable}
	var refused replyError
	if errors.As(err, &refused) && !refused.isExpected() {
		// go-redis has not looked at the reply. It is to see an error: it gives up a connection to a server that is
		// no master any more, and knows its kinds. Where the answer is an error nothing has happened.
		again.typed = true
		return t.exchange(&again)
	}
	if addr, asking, ok := redirection(err); ok && c.durable { // any other go-redis has followed by itself
		again.addr, again.asking = addr, asking
		return t.exchange(&again)
	}
	return r, acked, err
}

func (t *trip) exchange(c *command) (r reply, acked, err error) {
	if t.expired || t.ctx.Err() != nil { // also if an answer that came at the same moment was taken: no more is sent
		return reply{}, nil, &leftError{cause: t.cause()}
	}
	b := t.locker.routes.to(c)
	if t.mayFly(c) && b.flyHere(c) {
		return c.reply, c.acked, c.err
	}
	t.sit()
	c.until = time.Time{}
	c.done, t.seat.awaited = t.seat.done, true
	b.submit(c)
	select {
	case <-c.done:
		t.seat.awaited = false
		return c.reply, c.acked, c.err
	case <-t.ctx.Done():
	case <-t.seat.timer.C:
		t.expired = true
	}
	onItsWay, landed := b.leave(c)
	if landed {
		<-c.done
		t.seat.awaited = false
		return c.reply, c.acked, c.err
	}
	return reply{}, nil, &leftError{cause: t.cause(), sent: onItsWay}
}

// maxHere is how long a note or a value may be that its caller sends. It fits into any connection's buffer: on a full
// one go-redis closes a TLS connection with a time limit of its own.
const maxHere = 4 << 10

// mayFly gives c a term under which its caller may send it by itself, if the client will be back in time. Nobody could
// leave it behind: so that is only for what is asked in every request, and not for renewals, nor for those who wait.
func (t *trip) mayFly(c *command) bool {
	l := t.locker
	if !t.here || !l.punctual || !l.answered.Load() || c != &t.first ||
		len(t.claim.text) > maxHere || len(t.stored) > maxHere {
		return false
	}
	c.until = t.start.Add(l.opTimeout)
	if limit, ok := t.ctx.Deadline(); ok && limit.Before(c.until) {
		c.until = limit
	}
	c.term = l.ownTerms.at(t.start)
	return !c.until.Before(c.term.deadline)
}

// sit gives the trip a seat for the time that is left.
func (t *trip) sit() {
	if t.seat == nil {
		t.seat = t.locker.seats.take(time.Until(t.start.Add(t.locker.opTimeout)))
	}
}

// stand gives the seat back.
func (t *trip) stand() {
	if t.seat != nil {
		t.locker.seats.leave(t.seat)
	}
}

// cause tells why the caller waits no longer.
func (t *trip) cause() error {
	if t.expired {
		return errNoAnswer(t.locker.opTimeout)
	}
	return context.Cause(t.ctx)
}

// pause waits for d, and returns an error if it has to end before.
func (t *trip) pause(d time.Duration) error {
	if t.expired {
		return t.cause()
	}
	t.sit()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.ctx.Done():
	case <-t.seat.timer.C:
		t.expired = true
	}
	return t.cause()
}

// mayHaveArrived tells whether a try that failed may have been carried out nevertheless: not if Redis answered, and
// not if no connection was to be had.
func mayHaveArrived(err error) bool {
	var dial *net.OpError
	switch {
	case isReply(err):
		return false
	case errors.As(err, &dial) && dial.Op == "dial":
		return false
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return false
	}
	return true
}

// mayPass tells whether another try may succeed: whatever the network did, and what a server says while it starts, or
// while another one takes its place.
func mayPass(err error) bool {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, ErrNotReplicated) {
		return false
	}
	return !isReply(err) || redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) ||
		redis.IsClusterDownError(err) || redis.IsTryAgainError(err) || redis.IsMaxClientsError(err) || isMoved(err)
}

// redirection returns the node to which err sends us, and whether that has to be asked for the slot.
func redirection(err error) (addr string, asking, ok bool) {
	if addr, ok := redis.IsMovedError(err); ok {
		return addr, false, true
	}
	addr, ok = redis.IsAskError(err)
	return addr, true, ok
}

func isMoved(err error) bool {
	_, _, ok := redirection(err)
	return ok
}

// isReply tells whether err is an error that the server sent.
func isReply(err error) bool {
	if err == nil { // errors.As takes an allocation to say so
		return false
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// isForeign tells whether err says that the key holds another type. Redis 6 puts it into the middle of a script's
// error.
func isForeign(err error) bool {
	return isReply(err) && strings.Contains(err.Error(), "WRONGTYPE")
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// jitter returns a random time from [0, d).
func jitter(d time.Duration) time.Duration { return rand.N(d) }
