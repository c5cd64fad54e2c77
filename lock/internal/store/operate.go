package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// Operators' operations on a key: Inspect reads it, and Override acts on one claim or value. No lease is
// involved.

// The errors of an override that changed nothing. Package lock exports and documents them.
var (
	ErrChanged = errors.New("lock: the key does not hold the claim or value that the token names")
	ErrLive    = errors.New("lock: the lease has not run out")
)

// The errors of an override that lost a reply and then found that it may not act, and of one that Redis got after its
// time.
var (
	errUnsure = errors.New("a reply was lost, and the key has changed since: it may have been done, or may still be done" +
		" within the time for one operation")
	errLate = errors.New("the command reached Redis too late, and was ignored")
)

// Facts is what Inspect finds. The Entry has no Content, except for the owner of a lock: inspect.lua leaves it out.
type Facts struct {
	Entry
	Name string        // of the claim or value, for ParseName; empty when Free
	Size int           // in bytes, with the head
	TTL  time.Duration // until the key expires; negative if it never does
	Hold time.Duration // of a claim; 0 without a hold

	now int64 // when the key was read, by the server's clock, in milliseconds since 1970
}

// Inspect returns what the key holds, and changes nothing.
func (s *Store) Inspect(ctx context.Context, key Key) (Facts, error) {
	return s.newOp(ctx, key).inspect("inspect")
}

func (o *op) inspect(operation string) (f Facts, err error) {
	r := o.Do(func() (*pipeline.Reply, error) { return o.Eval(inspectScript, 1, o.key.arg, MaxOwner) })
	switch {
	case r.Err != nil:
		return f, failure(operation, r)
	case r.Absent:
		f.State = Free
		_, err = fmt.Sscanf(r.Fence, "%d", &f.now)
	default:
		_, err = fmt.Sscanf(r.Fence, "%d %d %d", &r.Left, &f.Size, &f.now)
	}
	if err != nil {
		return Facts{}, fmt.Errorf("lock: %s: %w: %w", operation, pipeline.ErrProtocol, err)
	}
	if r.Absent {
		return f, nil
	}
	if f.Entry, err = classify(r.Reply); err != nil {
		return Facts{}, err
	}
	f.Name, f.TTL, f.Hold = nameOf(r.Text), time.Duration(r.Left)*time.Millisecond, f.Entry.hold
	return f, nil
}

// Override is what an operator does to a claim or a value: it removes it, or replaces it with a value.
//
// A command without a reply may lie in the buffer of a broken connection, and reach Redis long after its caller was told
// that the override is refused. So every override carries a condition that a late copy cannot meet. Store.Override first
// reads the key and the server's time. A claim whose lease has not run out is refused there, before anything is sent that
// could change it. Each command then names, besides the token, the time until which it may act: the time that was read,
// plus the time for one operation. (The clock of a server that takes over from that one must not be far behind.)
//
// So ErrChanged, ErrLive and ErrForeign mean that nothing was changed, and that no command can change anything later. If a reply
// was lost, the error is errUnsure instead.
type Override struct {
	Operation string // for errors
	Head      []byte // of the claim or value
	Live      bool   // acts also on a claim whose lease has not run out

	Value []byte // takes its place, and begins with what NewValue returned for a new token; nil to remove
	TTL   time.Duration
}

// Override does v. It returns nil if the key is absent and v has no value.
func (s *Store) Override(ctx context.Context, key Key, v Override) error {
	o := s.newOp(ctx, key)
	seen, err := o.inspect(v.Operation)
	if err != nil {
		return err
	}
	if head, _ := ParseName(seen.Name); seen.State == Held && !v.Live && bytes.Equal(head, v.Head) {
		return ErrLive
	}
	r := o.Do(func() (*pipeline.Reply, error) {
		r, err := o.sendOverride(&v, seen.now)
		if err == nil && v.result(r) == nil {
			err = r.WaitErr
		}
		return r, err
	})
	switch {
	case r.Foreign:
		err = ErrForeign
	case r.Err != nil:
		return failure(v.Operation, r)
	default:
		err = v.result(r.Reply)
	}
	switch {
	case err != nil && r.Unsure:
		return wrap(v.Operation, errUnsure)
	case errors.Is(err, errLate):
		return wrap(v.Operation, err)
	}
	return err
}

// sendOverride sends override.lua. now is the server's time when the key was read.
func (o *op) sendOverride(v *Override, now int64) (*pipeline.Reply, error) {
	mode, until := "", now+o.store.config.OpTimeout.Milliseconds()
	if v.Live {
		mode = "live"
	}
	return o.EvalDurable(overrideScript, 1, o.key.arg, arg(v.Head), o.store.publish, mode, until, arg(v.Value),
		v.TTL.Milliseconds())
}

// result returns nil if the reply shows that override.lua has written or had nothing to remove. Otherwise it returns why
// the script left the key as it was.
func (v *Override) result(r *pipeline.Reply) error {
	switch {
	case r.Absent && v.Value == nil:
		return nil
	case r.Absent:
		return fmt.Errorf("%w: it is free", ErrChanged)
	case bytes.Equal(r.Text, v.Head), v.Value != nil && bytes.Equal(r.Text, v.Value[:headLen]):
		return nil
	case string(r.Text) == stillLive:
		return ErrLive
	case string(r.Text) == tooLate:
		return errLate
	case isHead(r.Text):
		return ErrChanged
	}
	return ErrForeign
}

// isHead reports whether a script has returned the head of a claim or a value.
func isHead(text []byte) bool {
	if len(text) != headLen {
		return false
	}
	return bytes.HasPrefix(text, []byte(claimMagic)) || bytes.HasPrefix(text, []byte(valueMagic))
}

// The replies of override.lua if the claim's lease has not run out, and if the command came too late.
const (
	stillLive = "the lease has not run out"
	tooLate   = "the command came too late"
)

// Abandoned returns the note of the abandoned claim with that head.
func (s *Store) Abandoned(ctx context.Context, key Key, head []byte) (note []byte, err error) {
	o := s.newOp(ctx, key)
	r := o.Do(o.sendLook)
	switch {
	case r.Err != nil:
		return nil, failure("settle", r)
	case r.Absent:
		return nil, fmt.Errorf("%w: it is free", ErrChanged)
	}
	e, err := classify(r.Reply)
	switch {
	case err != nil:
		return nil, err
	case !bytes.HasPrefix(r.Text, head):
		return nil, ErrChanged
	case e.State == Settled:
		return nil, fmt.Errorf("%w: the token is a value's, not a claim's", ErrChanged)
	case e.State == Held:
		return nil, ErrLive
	}
	return e.Content, nil
}
