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
	commands redis.Cmdable
	settle   *redis.Script
	close    func() error
}

const (
	bareLease     = 10 * time.Second
	bareRetention = 24 * time.Hour
	bareToken     = "8e03978e-40d5-43dd-bc93-6894a57f9324"
)

// way opens what the commands are sent through.
type way func(conditions) (commands redis.Cmdable, close func() error, err error)

func oneByOne(c conditions) (redis.Cmdable, func() error, error) {
	client := c.newClient()
	return client, client.Close, nil
}

// autoPipelined is go-redis's AutoPipeline with its defaults: callers wait for their answers, and what they send at the
// same time goes in one write, over one connection at a time.
func autoPipelined(fullDuplex bool) way {
	return func(c conditions) (redis.Cmdable, func() error, error) {
		client := c.newClient()
		options := redis.DefaultBlockingAutoPipelineOptions()
		options.FullDuplex = fullDuplex
		commands, err := client.AutoPipelineWithOptions(options)
		return commands, client.Close, err
	}
}

func newBare(ctx context.Context, c conditions, open way) (*bare, error) {
	commands, closeCommands, err := open(c)
	if err != nil {
		return nil, err
	}
	b := &bare{commands: commands, close: closeCommands, settle: redis.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then
			redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
			return 1
		end
		return 0`)}
	return b, b.settle.Load(ctx, commands).Err()
}

// claim takes the key, or returns what it holds.
func (b *bare) claim(ctx context.Context, key string) (held string, err error) {
	held, err = b.commands.SetArgs(ctx, key, bareToken, redis.SetArgs{Mode: "NX", Get: true, TTL: bareLease}).Result()
	if err == redis.Nil {
		return "", nil
	}
	return held, err
}

// complete leaves the value in the place of the claim.
func (b *bare) complete(ctx context.Context, key string, value []byte) error {
	done, err := b.settle.EvalSha(ctx, b.commands, []string{key}, bareToken, value, bareRetention.Milliseconds()).Int()
	if err == nil && done != 1 {
		return errors.New("the claim is gone")
	}
	return err
}

// commandContenders returns the bare commands without a request around them.
func commandContenders() []contender {
	const (
		firsts     = "bare: `SET NX GET PX`, `EVALSHA`"
		get        = "bare: `GET`"
		claim      = "bare: `SET NX GET PX`"
		halfDuplex = ", AutoPipeline"
		fullDuplex = ", AutoPipeline, full duplex"
	)
	half, full := autoPipelined(false), autoPipelined(true)
	getsBy := func(w way) func(context.Context, conditions) (subject, error) {
		return bareHits(w, response1, (*bare).get)
	}
	claims := bareHits(oneByOne, response1, (*bare).claim)
	return []contender{
		{group: first, name: "bare", label: firsts, setUp: bareFirsts(oneByOne)},
		{group: first, name: "bare-auto", label: firsts + halfDuplex, setUp: bareFirsts(half)},
		{group: first, name: "bare-auto-duplex", label: firsts + fullDuplex, setUp: bareFirsts(full)},
		{group: replay, name: "bare-get", label: get, setUp: getsBy(oneByOne)},
		{group: replay, name: "bare-get-auto", label: get + halfDuplex, setUp: getsBy(half)},
		{group: replay, name: "bare-get-auto-duplex", label: get + fullDuplex, setUp: getsBy(full)},
		{group: replay, name: "bare-claim", label: claim, setUp: claims},
		{group: inFlight, name: "bare-claim", label: claim, setUp: bareHits(oneByOne, claim1, (*bare).claim)},
	}
}

func (b *bare) get(ctx context.Context, key string) (string, error) {
	return b.commands.Get(ctx, key).Result()
}

// bareFirst takes fresh keys, and leaves values there.
type bareFirst struct {
	*bare
	conditions
	keys []keys
}

func bareFirsts(open way) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		b, err := newBare(ctx, c, open)
		return &bareFirst{b, c, make([]keys, c.callers)}, err
	}
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

func (f *bareFirst) close() error { return f.bare.close() }

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
	open way, value func(conditions) string, read func(*bare, context.Context, string) (string, error),
) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		b, err := newBare(ctx, c, open)
		return &bareHit{b, c, value(c), read}, err
	}
}

func (h *bareHit) begin(ctx context.Context) error {
	for i := range h.callers {
		if err := h.commands.Set(ctx, h.key(i), h.value, bareRetention).Err(); err != nil {
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

func (h *bareHit) close() error { return h.bare.close() }

// openBare opens a site of net/http that sends the bare commands and protects as far as that goes.
func openBare(ctx context.Context, c conditions, s *service) (*site, error) {
	b, err := newBare(ctx, c, oneByOne)
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
	return newSite(c, s, http.HandlerFunc(h), b.close)
}

// openBareGet opens such a site for replays: it looks first.
func openBareGet(ctx context.Context, c conditions, s *service) (*site, error) {
	b, err := newBare(ctx, c, oneByOne)
	if err != nil {
		return nil, err
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		held, err := b.get(r.Context(), key)
		if err == redis.Nil {
			s.run()
			held, err = string(s.body), b.commands.Set(r.Context(), key, s.body, bareRetention).Err()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(held))
	}
	return newSite(c, s, http.HandlerFunc(h), b.close)
}
