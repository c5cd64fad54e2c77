package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

const (
	ttl       = 9 * time.Second
	opTimeout = 500 * time.Millisecond
	ms        = time.Millisecond
)

var (
	valid   = lease.Validity(ttl) // how long a lease that is not renewed may be trusted
	errDown = errors.New("connection refused")
)

// answer is what a backend answers to one command, and how long that takes.
type answer struct {
	after time.Duration
	store.Found
}

// The answers of a backend.
var (
	ours     = answer{Found: store.Found{Holder: store.Ours}}
	nobody   = answer{Found: store.Found{Holder: store.Nobody}}
	ourValue = answer{Found: store.Found{Holder: store.OurValue}}
	another  = answer{Found: store.Found{Holder: store.Another}}
	down     = answer{Found: store.Found{Err: errDown}}
	lost     = answer{after: opTimeout, Found: store.Found{Err: context.DeadlineExceeded, Unsure: true}} // no reply

	// unsureAnother is the answer to a second try when the reply to the first one was lost.
	unsureAnother = answer{Found: store.Found{Holder: store.Another, Unsure: true}}
)

func slow(after time.Duration, a answer) answer {
	a.after = after
	return a
}

// backend answers as a test says, and writes down what it was sent. It returns when the context of the caller is done,
// as the real one does.
type backend struct {
	begin   time.Time
	answers map[string][]answer // by command, in their order; the last one stays
	onSend  func(command string)

	mu     sync.Mutex
	sent   []string // guarded by mu: "command time", the time being whole milliseconds since begin
	values []string // guarded by mu: the beginnings of what Settle was sent, without heads
	ttls   []time.Duration
	holds  []bool // what Release was told
}

func (b *backend) answer(ctx context.Context, command string) store.Found {
	if b.onSend != nil {
		b.onSend(command)
	}
	b.mu.Lock()
	b.sent = append(b.sent, fmt.Sprint(command, " ", time.Since(b.begin).Truncate(ms)))
	a := ours
	if answers := b.answers[command]; len(answers) > 0 {
		a = answers[0]
		if len(answers) > 1 {
			b.answers[command] = answers[1:]
		}
	}
	b.mu.Unlock()
	if err := background.Pause(ctx, a.after); err != nil {
		return store.Found{Err: err, Unsure: true}
	}
	return a.Found
}

func (b *backend) Extend(ctx context.Context, _ store.Key, _ uuid.UUID, d time.Duration) store.Found {
	if d != ttl {
		return b.answer(ctx, "extend "+d.String())
	}
	return b.answer(ctx, "renew")
}

func (b *backend) Release(ctx context.Context, _ store.Key, _ uuid.UUID, _ []byte, hasHold bool) store.Found {
	b.mu.Lock()
	b.holds = append(b.holds, hasHold)
	b.mu.Unlock()
	return b.answer(ctx, "release")
}

func (b *backend) Node(store.Key) any { return b }

func (b *backend) KeepReleasing(c store.Unneeded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := ""
	if !c.HasHold {
		state += " until " + c.Expiry.Sub(b.begin).String()
	}
	if c.Gone {
		state += ", gone"
	}
	if c.MayReturn {
		state += ", may return"
	}
	b.sent = append(b.sent, fmt.Sprint("keep releasing", state, " ", time.Since(b.begin).Truncate(ms)))
}

func (b *backend) Settle(
	ctx context.Context, _ store.Key, token uuid.UUID, _, value []byte, d time.Duration,
) store.Found {
	head := len(store.NewValue(token, time.Now(), 0))
	b.mu.Lock()
	b.values = append(b.values, string(value[head:min(len(value), head+100)]))
	b.ttls = append(b.ttls, d)
	b.mu.Unlock()
	return b.answer(ctx, "settle")
}

// world is one lease on a backend, in a bubble. Its clock stands at zero when the lease is asked for.
type world struct {
	*testing.T
	backend *backend
	group   *background.Group
	backlog lease.Backlog
	config  lease.Config
	core    *lease.Core
	first   *lease.Handle
}

// run runs test in a bubble, with a lease that was granted at once.
func run(t *testing.T, answers map[string][]answer, test func(w *world), opts ...func(*lease.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, group: background.NewGroup(context.Background())}
		w.backend = &backend{begin: time.Now(), answers: answers}
		w.config = lease.Config{
			TTL: ttl, OpTimeout: opTimeout, Renew: true, Group: w.group, Backlog: &w.backlog,
		}
		for _, opt := range opts {
			opt(&w.config)
		}
		w.core, w.first = w.newLease(w.backend)
		test(w)
		_ = w.close()
		time.Sleep(ttl) // for a renewal under way, which ends with the lease at the latest
	})
}

// in returns a subtest that runs beside others, as run does.
func in(answers map[string][]answer, test func(w *world), opts ...func(*lease.Config)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		run(t, answers, test, opts...)
	}
}

func withoutRenewal(c *lease.Config) { c.Renew = false }

func (w *world) newLease(b lease.Backend, opts ...func(*lease.ID)) (*lease.Core, *lease.Handle) {
	core, first := new(lease.Core), new(lease.Handle)
	id := lease.ID{Key: store.Namespace("ns").Key("key"), Token: store.NewToken()}
	for _, opt := range opts {
		opt(&id)
	}
	core.Init(&w.config, b, id, context.Background(), time.Now(), first)
	return core, first
}

// close closes what the leases have in common, as a Locker does. It returns what that returns.
func (w *world) close() error {
	w.Helper()
	w.backlog.Close()
	if err := w.group.Close(context.Background()); err != nil {
		w.Errorf("closing the group: %v", err)
	}
	return w.backlog.TakeUnstored()
}

// at waits until d after the beginning.
func (w *world) at(d time.Duration) {
	w.Helper()
	now := time.Since(w.backend.begin)
	if d < now {
		w.Fatalf("it is %v already, want %v", now, d)
	}
	time.Sleep(d - now)
	synctest.Wait()
}

// call runs f in another goroutine, and returns what waits for its error.
func (w *world) call(f func() error) (result func() error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	synctest.Wait()
	return func() error { return <-done }
}

func (w *world) settle(value string) error { return settle(w.first, value, time.Hour) }

func settle(h *lease.Handle, value string, d time.Duration) error {
	return h.Settle(context.Background(), len(value), func(b []byte) []byte { return append(b, value...) }, nil, d)
}

func (w *world) release() error { return w.first.Release(context.Background()) }

// sent compares what the backend was sent with want: commands and times, separated by commas.
func (w *world) sent(want string) {
	w.Helper()
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	if got := strings.Join(w.backend.sent, ", "); got != want {
		w.Errorf("sent:\ngot  %s\nwant %s", got, want)
	}
}

// forget lets sent begin anew.
func (w *world) forget() {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	w.backend.sent = nil
}

// count returns how many commands of a kind the backend was sent.
func (w *world) count(command string) (n int) {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	for _, s := range w.backend.sent {
		if strings.HasPrefix(s, command+" ") {
			n++
		}
	}
	return n
}

// answerWith changes what the backend answers from now on.
func (w *world) answerWith(command string, answers ...answer) {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	if w.backend.answers == nil {
		w.backend.answers = map[string][]answer{}
	}
	w.backend.answers[command] = answers
}

// wantErr compares the end of the first handle with want, and its context with both.
func (w *world) wantErr(want error) {
	w.Helper()
	wantEnd(w.T, w.first, want)
}

func wantEnd(t *testing.T, h *lease.Handle, want error) {
	t.Helper()
	if got := h.Err(); got != want {
		t.Errorf("Err: %v, want %v", got, want)
	}
	ctx := h.Context()
	if got := context.Cause(ctx); got != want {
		t.Errorf("the cause of the context's end: %v, want %v", got, want)
	}
}

func (w *world) wantPhase(want string) {
	w.Helper()
	if got := lease.PhaseNames[w.core.Phase()]; got != want {
		w.Errorf("the lease is %s, want %s", got, want)
	}
}

// wantUntil compares how long the lease is valid with want after the beginning.
func (w *world) wantUntil(want time.Duration) {
	w.Helper()
	if got := w.core.Until().Sub(w.backend.begin); got != want {
		w.Errorf("valid for %v from the beginning, want %v", got, want)
	}
}

func (w *world) wantStats(want lease.BacklogStats) {
	w.Helper()
	if got := w.backlog.Stats(); got != want {
		w.Errorf("stats: %+v, want %+v", got, want)
	}
}

// wantCounts compares what was counted of all leases with want.
func (w *world) wantCounts(active int64, renewals, lost uint64) {
	w.Helper()
	c := &w.config.Counts
	if c.Active.Load() != active || c.Renewals.Load() != renewals || c.Lost.Load() != lost {
		w.Errorf("%d active, %d renewals, %d lost; want %d, %d, %d",
			c.Active.Load(), c.Renewals.Load(), c.Lost.Load(), active, renewals, lost)
	}
}

// wantIs fails the test unless err is want, or nil if want is.
func wantIs(t *testing.T, doing string, err, want error) {
	t.Helper()
	if (want == nil) != (err == nil) || !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", doing, err, want)
	}
}
