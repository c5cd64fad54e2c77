package lock

import (
	"context"
	_ "embed" // the scripts
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed claim.lua
	claimSource string
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
	holdScript    = newScript(holdSource)
	extendScript  = newScript(extendSource)
	settleScript  = newScript(settleSource)
	releaseScript = newScript(releaseSource)
	forgetScript  = newScript(forgetSource)
)

type script struct{ source, sha string }

func newScript(source string) script {
	return script{source: source, sha: redis.NewScript(source).Hash()}
}

// eval runs a script on keys of one slot by its digest, and with its source where the server does not know it (any
// more). A server that does not know it has done nothing yet.
func (t *trip) eval(s script, keys []string, args ...any) (reply, error) {
	r, err := t.send(keys[0], evalArgs("evalsha", s.sha, keys, args)...)
	if isUnknown(err) {
		return t.send(keys[0], evalArgs("eval", s.source, keys, args)...)
	}
	return r, err
}

// evalWrite is eval for a script that writes what replicas must have, see write.
func (t *trip) evalWrite(s script, keys []string, args ...any) (r reply, acked, err error) {
	r, acked, err = t.write(keys[0], evalArgs("evalsha", s.sha, keys, args)...)
	if isUnknown(err) {
		return t.write(keys[0], evalArgs("eval", s.source, keys, args)...)
	}
	return r, acked, err
}

func isUnknown(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

func evalArgs(command, script string, keys []string, args []any) []any {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, command, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return append(all, args...)
}

// The scripts that act on a claim tell the head that they found: see standing.

func (l *Locker) extend(ctx context.Context, key string, token uuid.UUID, d time.Duration) answer {
	return l.ask(ctx, func(t *trip) (reply, error) {
		r, acked, err := t.writeExtension(key, head(claimMagic, token), d)
		if err == nil && r.standing(token) == claimed {
			err = acked
		}
		return r, err
	}, nil)
}

func (t *trip) writeExtension(key, head string, d time.Duration) (r reply, acked, err error) {
	how := ""
	if t.locker.replicas > 0 {
		how = "write"
	}
	return t.evalWrite(extendScript, []string{key}, head, d.Milliseconds(), how)
}

// writeHold lets the claim last for hold and lease, unless less than least is left of it.
func (l *Locker) writeHold(
	ctx context.Context, key string, token uuid.UUID, hold, lease, least time.Duration,
) answer {
	return l.ask(ctx, func(t *trip) (reply, error) {
		r, acked, err := t.evalWrite(holdScript, []string{key}, head(claimMagic, token), encodeHold(hold),
			(hold + lease).Milliseconds(), least.Milliseconds())
		if err == nil && r.standing(token) == claimed {
			err = acked
		}
		return r, err
	}, nil)
}

func (l *Locker) settle(ctx context.Context, key string, token uuid.UUID, value []byte, ttl time.Duration) answer {
	return l.ask(ctx, func(t *trip) (reply, error) {
		r, acked, err := t.evalWrite(settleScript, []string{key}, head(claimMagic, token), head(valueMagic, token),
			value, ttl.Milliseconds(), l.channel.publish)
		if err == nil && r.standing(token) != others {
			err = acked
		}
		return r, err
	}, nil)
}

// giveBack releases the key, whenever it would expire.
func (l *Locker) giveBack(ctx context.Context, key string, token uuid.UUID, _ time.Time) answer {
	return l.release(ctx, key, token)
}

func (l *Locker) release(ctx context.Context, key string, token uuid.UUID) answer {
	return l.ask(ctx, func(t *trip) (reply, error) {
		return t.eval(releaseScript, []string{key}, head(claimMagic, token), l.channel.publish)
	}, nil)
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
