package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// Operators' operations on a key: Inspect reads it, Remove and Replace override one claim or value. No lease is
// involved.

// The errors of an override that changed nothing. Package lock exports and documents them.
var (
	ErrChanged = errors.New("lock: the key does not hold the claim or value that the token names")
	ErrLive    = errors.New("lock: the lease has not run out")
)

// errUnsure is the error of an override that lost a reply, and whose next try found something else under the key.
var errUnsure = errors.New("a reply was lost, and the key has changed since: it may have been done")

// Facts is what Inspect finds. The Entry has no Content: inspect.lua leaves it out.
type Facts struct {
	Entry
	Name string        // of the claim or value, for ParseName; empty when Free
	Size int           // in bytes, with the head
	TTL  time.Duration // until the key expires; negative if it never does
	Hold time.Duration // of a claim; 0 without a hold
}

// Inspect returns what the key holds, and changes nothing.
func (s *Store) Inspect(ctx context.Context, key Key) (Facts, error) {
	o := s.newOp(ctx, key)
	r := o.Do(func() (*pipeline.Reply, error) { return o.Eval(inspectScript, 1, o.key.arg) })
	switch {
	case r.Err != nil:
		return Facts{}, failure("inspect", r)
	case r.Absent:
		return Facts{Entry: Entry{State: Free}}, nil
	}
	var size int
	if _, err := fmt.Sscanf(r.Fence, "%d %d", &r.Left, &size); err != nil {
		return Facts{}, fmt.Errorf("lock: inspect: %w: %w", pipeline.ErrProtocol, err)
	}
	e, err := classify(r.Reply)
	if err != nil {
		return Facts{}, err
	}
	return Facts{
		Entry: e, Name: nameOf(r.Text), Size: size, TTL: time.Duration(r.Left) * time.Millisecond, Hold: e.hold,
	}, nil
}

// Remove removes the claim or value with that head. With live it also removes a claim whose lease has not run out. It
// returns nil if the key is absent.
func (s *Store) Remove(ctx context.Context, key Key, head []byte, live bool) error {
	return s.override(ctx, "forget", key, head, live, nil, 0)
}

// Replace writes a value, which begins with what NewValue returned for a new token, in place of the abandoned claim
// with that head.
func (s *Store) Replace(ctx context.Context, key Key, head, value []byte, ttl time.Duration) error {
	return s.override(ctx, "settle", key, head, false, value, ttl)
}

// override sends override.lua: it removes the claim or value if value is nil.
func (s *Store) override(
	ctx context.Context, operation string, key Key, head []byte, live bool, value []byte, ttl time.Duration,
) error {
	mode := ""
	if live {
		mode = "live"
	}
	o := s.newOp(ctx, key)
	r := o.Do(func() (*pipeline.Reply, error) {
		r, err := o.EvalDurable(overrideScript, 1, o.key.arg, arg(head), s.publish, mode, arg(value),
			ttl.Milliseconds())
		if err == nil && overrideResult(r, head, value) == nil {
			err = r.WaitErr
		}
		return r, err
	})
	if r.Err != nil {
		return failure(operation, r)
	}
	err := overrideResult(r.Reply, head, value)
	// An earlier try, whose reply was lost, may have done the override before the key changed.
	if r.Unsure && errors.Is(err, ErrChanged) {
		return wrap(operation, errUnsure)
	}
	return err
}

// overrideResult returns nil if the reply shows that override.lua has written or had nothing to remove. Otherwise it
// returns why the script left the key as it was.
func overrideResult(r *pipeline.Reply, head, value []byte) error {
	switch {
	case r.Absent && value == nil:
		return nil
	case r.Absent:
		return fmt.Errorf("%w: it is free", ErrChanged)
	case bytes.Equal(r.Text, head), value != nil && bytes.Equal(r.Text, value[:headLen]):
		return nil
	case string(r.Text) == stillLive:
		return ErrLive
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

// stillLive is the reply of override.lua if the claim's lease has not run out.
const stillLive = "the lease has not run out"

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
