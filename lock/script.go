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
	//go:embed left.lua
	leftSource string
	//go:embed extend.lua
	extendSource string
	//go:embed settle.lua
	settleSource string
	//go:embed release.lua
	releaseSource string

	claimScript   = newScript(claimSource)
	holdScript    = newScript(holdSource)
	leftScript    = newScript(leftSource)
	extendScript  = newScript(extendSource)
	settleScript  = newScript(settleSource)
	releaseScript = newScript(releaseSource)
)

type script struct{ source, sha string }

func newScript(source string) script {
	return script{source: source, sha: redis.NewScript(source).Hash()}
}

// eval runs a script on one key by its digest, and with its source where the server does not know it (any more). A
// server that does not know it has done nothing yet.
func (l *Locker) eval(ctx context.Context, s script, key string, args ...any) (string, error) {
	reply, err := l.send(ctx, append([]any{"evalsha", s.sha, 1, key}, args...)...)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return l.send(ctx, append([]any{"eval", s.source, 1, key}, args...)...)
	}
	return reply, err
}

// The scripts that act on a claim tell the head that they found: see standing.

func (l *Locker) extend(ctx context.Context, key string, token uuid.UUID, ttl time.Duration) answer {
	return l.ask(ctx, func(ctx context.Context) (string, error) {
		return l.eval(ctx, extendScript, key, head(claimMagic, token), ttl.Milliseconds())
	}, nil)
}

func (l *Locker) settle(ctx context.Context, key string, token uuid.UUID, value []byte, ttl time.Duration) answer {
	return l.ask(ctx, func(ctx context.Context) (string, error) {
		return l.eval(ctx, settleScript, key, head(claimMagic, token), head(valueMagic, token), value,
			ttl.Milliseconds())
	}, nil)
}

func (l *Locker) release(ctx context.Context, key string, token uuid.UUID) answer {
	return l.ask(ctx, func(ctx context.Context) (string, error) {
		return l.eval(ctx, releaseScript, key, head(claimMagic, token))
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

func (a answer) standing(token uuid.UUID) standing {
	switch {
	case a.absent:
		return gone
	case a.value == head(claimMagic, token):
		return claimed
	case a.value == head(valueMagic, token):
		return left
	}
	return others
}
