package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

// bare is the least that anybody has to send, on go-redis as it is: no hashed keys, no fingerprint, no random tokens,
// nothing that is renewed, and no answer looked at closer than to see that it is the one wanted.
type bare struct {
	client *redis.Client
	settle *redis.Script
}

const (
	bareLease     = 10 * time.Second
	bareRetention = 24 * time.Hour
	bareToken     = "8e03978e-40d5-43dd-bc93-6894a57f9324"
)

func newBare(ctx context.Context, c conditions) (*bare, error) {
	b := &bare{client: c.newClient(), settle: redis.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then
			redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
			return 1
		end
		return 0`)}
	return b, b.settle.Load(ctx, b.client).Err()
}

// claim takes the key, or returns what it holds.
func (b *bare) claim(ctx context.Context, key string) (held string, err error) {
	held, err = b.client.SetArgs(ctx, key, bareToken, redis.SetArgs{Mode: "NX", Get: true, TTL: bareLease}).Result()
	if err == redis.Nil {
		return "", nil
	}
	return held, err
}

// complete leaves the value in the place of the claim.
func (b *bare) complete(ctx context.Context, key string, value []byte) error {
	done, err := b.settle.EvalSha(ctx, b.client, []string{key}, bareToken, value, bareRetention.Milliseconds()).Int()
	if err == nil && done != 1 {
		return errors.New("the claim is gone")
	}
	return err
}

// commandContenders returns the bare commands without a request around them.
func commandContenders() []contender {
	return []contender{
		{group: first, name: "bare", label: "bare: `SET NX GET PX`, `EVALSHA`", setUp: bareFirsts},
		{group: replay, name: "bare-get", label: "bare: `GET`", setUp: bareHits(response1, (*bare).get)},
		{group: replay, name: "bare-claim", label: "bare: `SET NX GET PX`", setUp: bareHits(response1, (*bare).claim)},
		{group: inFlight, name: "bare-claim", label: "bare: `SET NX GET PX`", setUp: bareHits(claim1, (*bare).claim)},
	}
}

func (b *bare) get(ctx context.Context, key string) (string, error) {
	return b.client.Get(ctx, key).Result()
}

// bareFirst takes fresh keys, and leaves values there.
type bareFirst struct {
	*bare
	conditions
	keys []keys
}

func bareFirsts(ctx context.Context, c conditions) (subject, error) {
	b, err := newBare(ctx, c)
	return &bareFirst{b, c, make([]keys, c.callers)}, err
}

func (f *bareFirst) begin(context.Context) error { return nil }

func (f *bareFirst) caller(i int) func() error {
	keys := &f.keys[i]
	keys.caller = i
	ctx := context.Background()
	return func() error {
		key := keys.fresh()
		switch held, err := f.claim(ctx, key); {
		case err != nil:
			return err
		case held != "":
			return fmt.Errorf("a fresh key holds %q", held)
		}
		return f.complete(ctx, key, f.body)
	}
}

func (f *bareFirst) end(ctx context.Context, answers []int) error {
	return f.store.wantKeys(ctx, sum(answers))
}

func (f *bareFirst) close() error { return f.client.Close() }

// bareHit reads a key that holds something, for each caller another one.
type bareHit struct {
	*bare
	conditions
	value string
	read  func(*bare, context.Context, string) (string, error)
}

// What the key holds.
func response1(c conditions) string { return string(c.body) }
func claim1(conditions) string      { return bareToken }

func bareHits(
	value func(conditions) string, read func(*bare, context.Context, string) (string, error),
) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		b, err := newBare(ctx, c)
		return &bareHit{b, c, value(c), read}, err
	}
}

func (h *bareHit) begin(ctx context.Context) error {
	for i := range h.callers {
		if err := h.client.Set(ctx, h.key(i), h.value, bareRetention).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (h *bareHit) key(i int) string { return (&keys{caller: i}).fresh() }

func (h *bareHit) caller(i int) func() error {
	ctx, key := context.Background(), h.key(i)
	return func() error {
		got, err := h.read(h.bare, ctx, key)
		if err == nil && got != h.value {
			return fmt.Errorf("read %.50q, want %.50q", got, h.value)
		}
		return err
	}
}

func (h *bareHit) end(ctx context.Context, _ []int) error { return h.store.wantKeys(ctx, h.callers) }

func (h *bareHit) close() error { return h.client.Close() }

// openBare opens a site of net/http that sends the bare commands and protects as far as that goes.
func openBare(ctx context.Context, c conditions, s *service) (*site, error) {
	b, err := newBare(ctx, c)
	if err != nil {
		return nil, err
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		held, err := b.claim(r.Context(), key)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		case held != "":
			http.Error(w, "in flight", http.StatusConflict)
			return
		}
		s.run()
		if err := b.complete(r.Context(), key, s.body); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(s.body)
	}
	return newSite(c, s, http.HandlerFunc(h), b.client.Close)
}

// openBareGet opens such a site for replays: it looks first.
func openBareGet(ctx context.Context, c conditions, s *service) (*site, error) {
	b, err := newBare(ctx, c)
	if err != nil {
		return nil, err
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		held, err := b.get(r.Context(), key)
		if err == redis.Nil {
			s.run()
			held, err = string(s.body), b.client.Set(r.Context(), key, s.body, bareRetention).Err()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(held))
	}
	return newSite(c, s, http.HandlerFunc(h), b.client.Close)
}
