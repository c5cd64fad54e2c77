package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/onceguard/onceguard/once"
)

// processOnce returns a middleware of asynq, after which each task takes effect once. The id is that of the task, which
// is the same in every retry. The default mode is right for a queue that retries: an error frees the key.
//
// asynq's own Unique and TaskID prevent that a task is enqueued twice. They do not prevent that it runs twice: asynq
// retries a task whose worker has died or was cut off, and that worker may have done it.
func processOnce(g *once.Guard) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			queue, _ := asynq.GetQueueName(ctx)
			key := once.Key{Operation: task.Type(), Scope: queue, ID: id, Input: task.Payload()}
			_, _, err := once.Do(ctx, g, key, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, next.ProcessTask(ctx, task)
			})
			var failed *once.StoredError
			var refused *once.Refused
			switch {
			case errors.Is(err, once.ErrNotStored): // it was done
				return nil
			case errors.As(err, &failed), errors.As(err, &refused) && !refused.Retryable:
				return fmt.Errorf("%w: %w", err, asynq.SkipRetry) // archived: a person looks at it
			}
			return err
		})
	}
}

// isFailure reports whether a try counts: one that only found another one at work does not.
func isFailure(err error) bool {
	var refused *once.Refused
	return !errors.As(err, &refused) || !refused.Retryable
}

// retryDelay is when the next try makes sense.
func retryDelay(tries int, err error, task *asynq.Task) time.Duration {
	if refused := (*once.Refused)(nil); errors.As(err, &refused) && refused.Retryable {
		return refused.RetryAfter
	}
	return asynq.DefaultRetryDelayFunc(tries, err, task)
}
