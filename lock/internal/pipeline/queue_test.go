package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// fakeNode is a client that answers by itself: it has no connection and no pool, so a bubble can use it. It records the
// batches that it was sent.
type fakeNode struct {
	redis.UniversalClient // nil: no other method is called

	takes func(batch []string) time.Duration // how long the answer to a batch takes
	err   error                              // instead of a reply
	ctx   context.Context                    // of the last command or batch

	mu         sync.Mutex
	batches    [][]string // guarded by mu: the last argument of each command
	inFlight   int        // guarded by mu
	mostAtOnce int        // guarded by mu: batches in flight
}

func (n *fakeNode) Process(ctx context.Context, cmd redis.Cmder) error {
	return n.exec(ctx, []redis.Cmder{cmd})
}

func (n *fakeNode) Pipeline() redis.Pipeliner { return &fakePipeline{node: n} }

func (n *fakeNode) exec(ctx context.Context, cmds []redis.Cmder) error {
	var names []string
	for _, cmd := range cmds {
		args := cmd.Args()
		names = append(names, fmt.Sprint(args[len(args)-1]))
	}
	n.mu.Lock()
	n.batches, n.ctx = append(n.batches, names), ctx
	n.inFlight++
	n.mostAtOnce = max(n.mostAtOnce, n.inFlight)
	err := n.err
	n.mu.Unlock()
	if n.takes != nil {
		time.Sleep(n.takes(names))
	}
	for i, cmd := range cmds {
		if err != nil {
			cmd.SetErr(err)
			continue
		}
		cmd.(cmder).SetVal(names[i])
	}
	n.mu.Lock()
	n.inFlight--
	n.mu.Unlock()
	return err
}

func (n *fakeNode) sent() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var batches []string
	for _, b := range n.batches {
		batches = append(batches, strings.Join(b, "+"))
	}
	return strings.Join(batches, " ")
}

type fakePipeline struct {
	redis.Pipeliner
	node *fakeNode
	cmds []redis.Cmder
}

func (p *fakePipeline) Process(_ context.Context, cmd redis.Cmder) error {
	p.cmds = append(p.cmds, cmd)
	return nil
}

func (p *fakePipeline) Exec(ctx context.Context) ([]redis.Cmder, error) {
	return p.cmds, p.node.exec(ctx, p.cmds)
}

const opTimeout = 500 * ms

// bubble runs test with a pipeline to a node.
func bubble(t *testing.T, test func(t *testing.T, p *Pipeline, n *fakeNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		base := context.WithValue(context.Background(), valueKey{}, "the base's")
		node, group := &fakeNode{}, background.NewGroup(base)
		p := New(node, group, Config{OpTimeout: opTimeout})
		test(t, p, node)
		if err := group.Close(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		time.Sleep(2 * opTimeout) // for the timers of deadlines
	})
}

// start sends a command in another goroutine, and returns a function that waits for its result.
func start(p *Pipeline, ctx context.Context, name string, late LateHandler) func() Result {
	done := make(chan Result, 1)
	go func() {
		c := &Call{Pipeline: p, Context: ctx, Key: "k", Late: late}
		done <- c.Do(func() (*Reply, error) { return c.SendDurable("get", name) })
	}()
	synctest.Wait()
	return func() Result { return <-done }
}

func wantReply(t *testing.T, r Result, want string) {
	t.Helper()
	if r.Err != nil || string(r.Text) != want || r.Unsure {
		t.Errorf("%q, %v, unsure %t, want %q", r.Text, r.Err, r.Unsure, want)
	}
}

// submit does not wait for the reply: another goroutine sends the command. Not parallel: it fails before others hang.
func TestSubmitReturnsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		over, returned := make(chan struct{}), make(chan struct{})
		n.takes = func([]string) time.Duration { <-over; return 0 }
		c := &command{call: &Call{Pipeline: p, Context: t.Context(), Start: time.Now()}, args: []any{"get", "k"}}
		events := make(chan event, 1)
		c.events = events
		go func() {
			p.router.queue(c).submit(c)
			close(returned)
		}()
		synctest.Wait()
		select {
		case <-returned:
		default:
			t.Fatal("submit waits for the reply")
		}
		close(over)
		<-events
	})
}

// While few commands are in flight, a command is sent at once. Later commands wait, and are sent together.
func TestBatches(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		n.takes = func([]string) time.Duration { return 10 * ms }
		var results []func() Result
		for i := range fewInFlight + 20 {
			results = append(results, start(p, t.Context(), fmt.Sprint(i), nil))
		}
		if got := n.sent(); got != "0 1 2 3 4 5 6 7" {
			t.Errorf("sent %s, want %d commands alone", got, fewInFlight)
		}
		for i, result := range results {
			wantReply(t, result(), fmt.Sprint(i))
		}
		if n.mostAtOnce != fewInFlight {
			t.Errorf("%d batches were in flight at once, want %d", n.mostAtOnce, fewInFlight)
		}
		var sizes []int
		for _, b := range n.batches[fewInFlight:] {
			sizes = append(sizes, len(b))
		}
		slices.Sort(sizes)
		if got := fmt.Sprint(sizes); got != "[1 4 15]" {
			t.Errorf("20 commands went in batches of %v", got)
		}
	})
}

// A queue is full with three batches and eight commands in flight, not with fewer of either.
func TestFull(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		batches, commands int
		want              bool
	}{
		{0, 0, false}, {2, 2, false}, {2, 500, false}, {3, 3, false}, {3, 7, false}, {7, 7, false},
		{3, 8, true}, {8, 8, true}, {3, 500, true}, {9, 9, true},
	} {
		q := &queue{inFlight: make([]*batch, test.batches), unanswered: test.commands}
		if got := q.full(); got != test.want {
			t.Errorf("%d batches with %d commands: full is %t", test.batches, test.commands, got)
		}
	}
}

// A command that goes alone shares no batch.
func TestCommandsThatGoAlone(t *testing.T) {
	t.Parallel()
	for kinds, want := range map[string]string{
		"....": "3", "a...": "1", ".a..": "1", "..a.": "2", "aaaa": "1", ".": "1", "a": "1",
	} {
		q := new(queue)
		q.init(&Pipeline{config: Config{OpTimeout: opTimeout}})
		for _, kind := range kinds {
			q.waiting = append(q.waiting, &command{call: &Call{Start: time.Now()}, alone: kind == 'a'})
		}
		if got := fmt.Sprint(len(q.nextBatch(len(q.waiting)).commands)); got != want {
			t.Errorf("%s: a batch of %s, want %s", kinds, got, want)
		}
	}
}

// A batch has at most maxBatchBytes of arguments and replies, but at least one command.
func TestBatchBytes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ size, replies, want int }{
		"small":                   {10, 0, 16},
		"half":                    {maxBatchBytes / 2, 0, 2},
		"a bit more than half":    {maxBatchBytes/2 + 1, 0, 1},
		"a third":                 {maxBatchBytes / 3, 0, 3},
		"large":                   {10 * maxBatchBytes, 0, 1},
		"large replies":           {0, maxBatchBytes / 4, 4},
		"replies and arguments":   {maxBatchBytes / 4, maxBatchBytes / 4, 2},
		"replies that are larger": {0, 2 * maxBatchBytes, 1},
	} {
		q := new(queue)
		q.init(&Pipeline{config: Config{OpTimeout: opTimeout}})
		q.pacer.replyBytes = test.replies
		argument := Bytes(make([]byte, test.size))
		for range 32 {
			q.waiting = append(q.waiting, &command{call: &Call{Start: time.Now()}, args: []any{&argument}})
		}
		if got := len(q.nextBatch(32).commands); got != test.want || len(q.waiting) != 32-got {
			t.Errorf("%s: a batch of %d and %d wait, want %d", name, got, len(q.waiting), test.want)
		}
	}
}

// A command that is canceled is not sent, wherever it stands in the queue, and neither are commands that can no longer
// be answered in time.
func TestNextBatchDrops(t *testing.T) {
	t.Parallel()
	// c: canceled, x: too late while a batch is in flight, .: to be sent
	for kinds, test := range map[string]struct {
		inFlight int
		sent     int
		stay     int
	}{
		"....":     {1, 3, 1},
		"cc..":     {1, 2, 0},
		"xx..":     {1, 2, 0},
		"cxcx....": {1, 3, 1},
		"xx...":    {0, 4, 1}, // nothing is in flight: no command is too late
		".ccc..":   {1, 3, 0}, // those in the middle are passed over
		"cccc":     {1, 0, 0},
		"xxxx":     {1, 0, 0},
		"xxc":      {0, 2, 0},
		"":         {1, 0, 0},
	} {
		q := new(queue)
		q.init(&Pipeline{config: Config{OpTimeout: opTimeout}})
		now := time.Now()
		for range test.inFlight {
			q.inFlight = append(q.inFlight, &batch{})
		}
		for _, kind := range kinds {
			c := &command{call: &Call{Start: now}, canceled: kind == 'c'}
			if kind == 'x' {
				c.call.Start = now.Add(-2 * opTimeout)
			}
			q.waiting = append(q.waiting, c)
		}
		sent := 0
		if b := q.nextBatch(len(kinds)); b != nil {
			sent = len(b.commands)
			for _, c := range b.commands {
				if c.canceled || c.stage != stageSent {
					t.Errorf("%q: the batch has a command that is canceled %t, in stage %d", kinds, c.canceled, c.stage)
				}
			}
		}
		if sent != test.sent || len(q.waiting) != test.stay {
			t.Errorf("%q: %d sent and %d wait, want %d and %d", kinds, sent, len(q.waiting), test.sent, test.stay)
		}
	}
}

type lateResults chan Result

func (l lateResults) HandleLate(r Result) { l <- r }

// A caller stops waiting when the operation times out or its context is done. A later result goes to Late.
func TestCancel(t *testing.T) {
	t.Parallel()
	cause := errors.New("the client has gone")
	for name, test := range map[string]struct {
		limit time.Duration // of the caller's context
		takes time.Duration
		took  time.Duration
		err   error
		late  bool
	}{
		"in time":             {time.Hour, 499 * ms, 499 * ms, nil, false},
		"out of time":         {time.Hour, time.Second, opTimeout, context.DeadlineExceeded, true},
		"the context is over": {100 * ms, 300 * ms, 100 * ms, cause, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
				n.takes = func([]string) time.Duration { return test.takes }
				ctx, cancel := context.WithTimeoutCause(t.Context(), test.limit, cause)
				defer cancel()
				begin, late := time.Now(), make(lateResults, 1)
				r := start(p, ctx, "a", late)()
				if took := time.Since(begin); took != test.took || !errors.Is(r.Err, test.err) || r.Unsure != test.late {
					t.Errorf("%v, unsure %t, after %v; want %v after %v", r.Err, r.Unsure, took, test.err, test.took)
				}
				if test.late {
					wantReply(t, <-late, "a")
					if took := time.Since(begin); took != test.takes {
						t.Errorf("the late result came after %v, want %v", took, test.takes)
					}
				}
				time.Sleep(time.Minute)
				if len(late) != 0 {
					t.Error("a late result that is one too many")
				}
			})
		})
	}
}

// A command that is canceled in the queue is never sent, and has no late result.
func TestCancelInTheQueue(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		n.takes = func([]string) time.Duration { return 20 * ms }
		var results []func() Result
		for i := range fewInFlight {
			results = append(results, start(p, t.Context(), fmt.Sprint(i), nil))
		}
		ctx, cancel := context.WithCancel(t.Context())
		late := make(lateResults, 1)
		canceled := start(p, ctx, "canceled", late)
		waits := start(p, t.Context(), "waits", nil)
		cancel()
		if r := canceled(); !errors.Is(r.Err, context.Canceled) || r.Unsure {
			t.Errorf("%v, unsure %t, want that it was not sent", r.Err, r.Unsure)
		}
		for i, result := range results {
			wantReply(t, result(), fmt.Sprint(i))
		}
		wantReply(t, waits(), "waits")
		if got := n.sent(); strings.Contains(got, "canceled") || len(late) != 0 {
			t.Errorf("sent %s; %d late results", got, len(late))
		}
	})
}

// A call whose context is done sends nothing.
func TestDoneContextSendsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := start(p, ctx, "a", nil)(); !errors.Is(r.Err, context.Canceled) || r.Unsure {
			t.Errorf("%v, unsure %t", r.Err, r.Unsure)
		}
		if got := n.sent(); got != "" {
			t.Errorf("sent %s", got)
		}
	})
}

// Do calls try at most four times, and its result tells whether a try may have arrived.
func TestDoTriesAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err             error
		tries           int
		unsure, foreign bool
		alone           bool // so that go-redis leaves the connection
	}{
		"a connection that breaks":   {errors.New("EOF"), maxTries, true, false, false},
		"a pool that is empty":       {redis.ErrPoolTimeout, maxTries, false, false, false},
		"a client that is closed":    {redis.ErrClosed, 1, false, false, false},
		"a server that loads":        {rediserr.Reply("LOADING Redis is loading the dataset in memory"), maxTries, false, false, false},
		"a wrong type":               {rediserr.Reply("WRONGTYPE Operation against a key"), 1, false, true, false},
		"a server that is no master": {rediserr.Reply("READONLY You can't write"), maxTries, false, false, true},
		"too few replicas":           {ErrNotReplicated, 1, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
				c := &Call{Pipeline: p, Context: t.Context(), Key: "k"}
				tries, alone := 0, false
				r := c.Do(func() (*Reply, error) {
					tries++
					alone = c.command(false, nil, "get").alone
					return nil, test.err
				})
				if !errors.Is(r.Err, test.err) || tries != test.tries || r.Unsure != test.unsure || r.Foreign != test.foreign {
					t.Errorf("%v, unsure %t, foreign %t, after %d tries; want %d", r.Err, r.Unsure, r.Foreign, tries, test.tries)
				}
				if alone != test.alone {
					t.Errorf("the last try goes alone: %t", alone)
				}
			})
		})
	}
}

// Batches that hang do not delay commands on other connections, even if as many hang as fill it: the queue probes the node and, once
// a probe is complete, gives the places of those batches to others.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		n.takes = func(batch []string) time.Duration {
			if strings.HasPrefix(batch[0], "hangs") {
				return 10 * time.Second
			}
			return ms
		}
		var hang []func() Result
		for i := range fewInFlight {
			hang = append(hang, start(p, t.Context(), fmt.Sprint("hangs", i), nil))
		}
		time.Sleep(ms)
		begin := time.Now()
		var results []func() Result
		for i := range 20 {
			results = append(results, start(p, t.Context(), fmt.Sprint(i), nil))
		}
		for i, result := range results {
			wantReply(t, result(), fmt.Sprint(i))
		}
		if took := time.Since(begin); took > 2*opTimeout/silenceDivisor {
			t.Errorf("20 commands took %v beside connections that hang", took)
		}
		for _, result := range hang {
			if r := result(); !errors.Is(r.Err, context.DeadlineExceeded) || !r.Unsure {
				t.Errorf("a command that hangs: %v, unsure %t", r.Err, r.Unsure)
			}
		}
		time.Sleep(10 * time.Second)
		if took := p.router.one.plain.pacer.took; took > ms {
			t.Errorf("a batch takes %v: those that hung have changed the pace", took)
		}
	})
}

// A command may complete in the moment in which its operation times out. Either its caller or Late gets the result.
func TestCompleteAtTheLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		n.takes = func([]string) time.Duration { return opTimeout }
		for range 50 {
			late := make(lateResults, 1)
			r := start(p, t.Context(), "a", late)()
			synctest.Wait()
			if r.Err == nil {
				wantReply(t, r, "a")
			}
			if isLate := r.Err != nil; len(late) == 1 != isLate || r.Unsure != isLate {
				t.Fatalf("%v, unsure %t, %d late results", r.Err, r.Unsure, len(late))
			}
		}
	})
}
