package lock

import (
	"context"
	_ "embed" // the scripts
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed claim.lua
	claimSource string
	//go:embed confirm.lua
	confirmSource string
	//go:embed hold.lua
	holdSource string
	//go:embed extend.lua
	extendSource string
	//go:embed settle.lua
	settleSource string
	//go:embed release.lua
	releaseSource string
	//go:embed forget.lua
	forgetSource string

	claimScript   = newScript(claimSource)
	confirmScript = newScript(confirmSource)
	holdScript    = newScript(holdSource)
	extendScript  = newScript(extendSource)
	settleScript  = newScript(settleSource)
	releaseScript = newScript(releaseSource)
	forgetScript  = newScript(forgetSource)
)

// script is how the commands begin that run it. Positions in keys are texts in the scripts, as Redis wants them: a
// number would be printed for each call.
type script struct{ byDigest, bySource []any }

func newScript(source string) script {
	return script{byDigest: []any{"evalsha", redis.NewScript(source).Hash()}, bySource: []any{"eval", source}}
}

// eval runs a script by its digest, and with its source where the server does not know it (any more). A server that
// does not know it has done nothing yet. The arguments are the number of keys, the keys, and the script's arguments.
func (t *trip) eval(s script, args ...any) (reply, error) {
	r, _, err := t.run(false, s, args...)
	return r, err
}

// evalWrite is eval for a script that writes what replicas must have, see send.
func (t *trip) evalWrite(s script, args ...any) (r reply, acked, err error) {
	return t.run(t.locker.replicas > 0, s, args...)
}

func (t *trip) run(durable bool, s script, args ...any) (r reply, acked, err error) {
	r, acked, err = t.send(t.command(durable, s.byDigest, args...))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return t.send(t.command(durable, s.bySource, args...))
	}
	return r, acked, err
}

// The scripts that act on a claim tell the head that they found: see standing.

// actOn returns a trip that acts on the claim with the token.
func (l *Locker) actOn(ctx context.Context, key storageKey, token uuid.UUID) *trip {
	t := l.newTrip(ctx, key)
	t.claim.token = token
	t.claim.text = appendHead(t.room[:0], claimMagic, token)
	return t
}

func (l *Locker) extend(ctx context.Context, key storageKey, token uuid.UUID, d time.Duration) answer {
	return l.actOn(ctx, key, token).ask(func(t *trip) (reply, error) {
		r, acked, err := t.writeExtension(d)
		if err == nil && r.standing(token) == claimed {
			err = acked
		}
		return r, err
	})
}

func (t *trip) writeExtension(d time.Duration) (r reply, acked, err error) {
	how := ""
	if t.locker.replicas > 0 {
		how = "write"
	}
	return t.evalWrite(extendScript, 1, t.key.arg, t.claim.head(), d.Milliseconds(), how)
}

// writeHold lets the claim last for hold and lease, unless less than least is left of the lease.
func (l *Locker) writeHold(
	ctx context.Context, key storageKey, token uuid.UUID, hold, lease, least time.Duration,
) answer {
	return l.actOn(ctx, key, token).ask(func(t *trip) (reply, error) {
		r, acked, err := t.evalWrite(holdScript, 1, t.key.arg, &t.claim.text, encodeHold(hold),
			hold.Milliseconds(), lease.Milliseconds(), least.Milliseconds())
		if err == nil && r.standing(token) == claimed {
			err = acked
		}
		return r, err
	})
}

func (l *Locker) settle(ctx context.Context, key storageKey, token uuid.UUID, stored []byte, ttl time.Duration) answer {
	t := l.actOn(ctx, key, token)
	t.here = true
	t.stored, t.ttl = stored, strconv.AppendInt(t.room[headLen:headLen], ttl.Milliseconds(), 10)
	return t.ask(func(t *trip) (reply, error) {
		r, acked, err := t.evalWrite(settleScript, 1, t.key.arg, &t.claim.text, &t.stored, &t.ttl, l.channel.publish)
		if err == nil && r.standing(token) != others {
			err = acked
		}
		return r, err
	})
}

// giveBack releases the key, whenever it would expire.
func (l *Locker) giveBack(ctx context.Context, key storageKey, token uuid.UUID, _ time.Time) answer {
	t := l.actOn(ctx, key, token)
	t.here = true
	return t.ask((*trip).release)
}

// release is giveBack in the background.
func (l *Locker) release(ctx context.Context, key storageKey, token uuid.UUID) answer {
	return l.actOn(ctx, key, token).ask((*trip).release)
}

func (t *trip) release() (reply, error) {
	return t.eval(releaseScript, 1, t.key.arg, &t.claim.text, t.locker.channel.publish)
}

// standing is how a key stood towards a lease when a script looked at it.
type standing int

const (
	claimed standing = iota // the key held this lease's claim
	gone                    // the key did not exist
	left                    // the key held the value that this lease settled
	others                  // the key holds somebody else's claim or value, or a foreign one
)

func (r reply) standing(token uuid.UUID) standing {
	switch {
	case r.absent:
		return gone
	case len(r.text) == headLen && hasHead(r.text, claimMagic, token):
		return claimed
	case len(r.text) == headLen && hasHead(r.text, valueMagic, token):
		return left
	}
	return others
}
