package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceguard/onceguard/once"
)

// handleOnce returns a middleware for a router of watermill, after which each message takes effect once.
//
// The id is the UUID of the message, which its publisher has made: a redelivery has the same. If a publisher may publish
// the same order twice, with another UUID, let it put the order's id into the metadata, and give the name of that field:
// a message that has the field is known by it. field may be empty. group is the consumer group: every group handles each
// message.
//
// What the handler produces is stored. On a redelivery the router publishes it again with the same UUIDs, because the
// first process may have died before it did. So its consumers should use this middleware too.
//
// A message that another process is handling is nacked when it makes sense to try again.
//
// watermill's own Deduplicator is no substitute. It marks a message as seen before the handler runs, so a message whose
// handler fails is lost.
func handleOnce(g *once.Guard, group, field string) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			delivery := msg.Context()
			key := once.Key{
				Operation: message.HandlerNameFromCtx(delivery), Scope: group, ID: msg.UUID, Input: []byte(msg.Payload),
			}
			if id := msg.Metadata.Get(field); id != "" {
				key.ID = field + " " + id // no UUID is this
			}
			out, _, err := once.Do(delivery, g, key, func(ctx context.Context) ([]produced, error) {
				defer msg.SetContext(delivery)
				msg.SetContext(ctx)
				messages, err := next(msg)
				return keep(messages), err
			})
			if refused := (*once.Refused)(nil); errors.As(err, &refused) && refused.Retryable {
				sleep(delivery, refused.RetryAfter)
			}
			if errors.Is(err, once.ErrNotStored) { // it was handled, and what it produced is too long to be kept
				return nil, nil
			}
			return restore(out), err // the router nacks if there is an error
		}
	}
}

// needsPerson reports whether another delivery would get the same error: the handler has returned once.Final(err) in an
// earlier one, or nobody knows what happened. Such messages go to the poison queue.
func needsPerson(err error) bool {
	var failed *once.StoredError
	var refused *once.Refused
	return errors.As(err, &failed) || errors.As(err, &refused) && !refused.Retryable
}

// produced is a message of a handler as it is stored.
type produced struct {
	UUID     string
	Metadata message.Metadata
	Payload  []byte
}

func keep(messages []*message.Message) (out []produced) {
	for _, m := range messages {
		out = append(out, produced{m.UUID, m.Metadata, m.Payload})
	}
	return out
}

func restore(stored []produced) (out []*message.Message) {
	for _, p := range stored {
		m := message.NewMessage(p.UUID, p.Payload)
		m.Metadata = p.Metadata
		out = append(out, m)
	}
	return out
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
