package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// Resume replaces the claim of a lock, that of the token from, with one of the token to, which begins at start. It returns
// it as Granted. A try whose reply was lost is recognized by the token to.
//
// If Resume fails, the claim may have been replaced nevertheless. It is then left to expire: its earlier holder
// may not know yet that it is lost.
func (s *Store) Resume(ctx context.Context, key Key, from, to uuid.UUID, start time.Time, owner string) (Entry, error) {
	o := s.newOp(ctx, key)
	o.Start = start
	o.claim = appendOwner(appendClaim(o.room[:0], to, false, 0, start, nil), to, owner)
	r := o.Do(func() (*pipeline.Reply, error) {
		r, err := o.sendResume(from)
		if err == nil && isResumed(r) {
			err = r.WaitErr
		}
		return r, err
	})
	switch {
	case r.Err != nil:
		return Entry{}, failure("resume", r)
	case isResumed(r.Reply):
		return o.newGrant(r.Reply)
	case r.Absent:
		return Entry{}, ErrLost
	}
	if _, err := classify(r.Reply); err != nil {
		return Entry{}, err
	}
	return Entry{}, ErrLost
}

// sendResume sends resume.lua.
func (o *op) sendResume(from uuid.UUID) (*pipeline.Reply, error) {
	args := []any{1, o.key.arg}
	if o.store.config.Fencing {
		args = []any{2, o.key.arg, o.store.config.Namespace.fence(o.key)}
	}
	head := appendHead(nil, claimMagic, from)
	return o.EvalDurable(resumeScript, append(args, arg(head), arg(o.claim[:headLen]), arg(o.claim[holdPos:]), o.ttl())...)
}

// isResumed reports whether the reply r of resume.lua shows that the key holds the new claim.
func isResumed(r *pipeline.Reply) bool { return r.Absent && r.Fence != "" }
