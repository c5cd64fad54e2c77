package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// acts are the operations on our claim.
var acts = map[string]func(w *world) store.Found{
	"extend": func(w *world) store.Found { return w.Extend(w.Context(), w.key, ours, time.Minute) },
	"settle": func(w *world) store.Found {
		return w.Settle(w.Context(), w.key, ours, nil, []byte(value(ours, "value")), hold)
	},
	"release":      func(w *world) store.Found { return w.Release(w.Context(), w.key, ours, nil, false) },
	"release hold": func(w *world) store.Found { return w.Release(w.Context(), w.key, ours, nil, true) },
}

// The reply of a script says who had the key.
func TestOutcome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers []string
		want    store.Found
	}{
		"our claim":       {[]string{text(head(ourClaim))}, store.Found{Holder: store.Ours}},
		"nothing":         {[]string{absent}, store.Found{Holder: store.Nobody}},
		"our value":       {[]string{text(head(value(ours, "")))}, store.Found{Holder: store.OurValue}},
		"another claim":   {[]string{text(head(held))}, store.Found{Holder: store.Another}},
		"another value":   {[]string{text(head(settled))}, store.Found{Holder: store.Another}},
		"foreign":         {[]string{text(foreign)}, store.Found{Holder: store.Another}},
		"a longer claim":  {[]string{text(ourClaim)}, store.Found{Holder: store.Another}},
		"a longer value":  {[]string{text(value(ours, ""))}, store.Found{Holder: store.Another}},
		"another type":    {[]string{"-WRONGTYPE x\r\n"}, store.Found{Holder: store.Another}},
		"a lost reply":    {[]string{cut, absent}, store.Found{Holder: store.Nobody, Unsure: true}},
		"then foreign":    {[]string{cut, "-WRONGTYPE x\r\n"}, store.Found{Holder: store.Another, Unsure: true}},
		"an error":        {[]string{"-ERR x\r\n"}, store.Found{Err: errAny}},
		"no reply at all": {[]string{cut, cut, cut, cut}, store.Found{Err: errAny, Unsure: true}},
	} {
		for act, do := range acts {
			t.Run(act+", "+name, in(test.answers, func(w *world) {
				got := do(w)
				wantErr(w.T, got.Err, test.want.Err)
				if got.Holder != test.want.Holder || got.Unsure != test.want.Unsure {
					w.Errorf("%+v, want %+v", got, test.want)
				}
			}))
		}
	}
}

// Under WithReplicas an operation counts once enough replicas have what it wrote. What it did not write does not matter.
func TestReplicated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		head  string
		wrote []string // the operations that have written then
	}{
		"our claim": {text(head(ourClaim)), []string{"extend", "settle", "release hold"}},
		"nothing":   {absent, []string{"settle", "release hold"}},
		"our value": {text(head(value(ours, ""))), []string{"settle"}},
		"another":   {text(head(held)), nil},
	} {
		for act, do := range acts {
			t.Run(act+", "+name, func(t *testing.T) {
				t.Parallel()
				waits := act != "release"
				wrote := waits && slices.Contains(test.wrote, act)
				for wait, fails := range map[string]bool{one: false, none: wrote} {
					run(t, []string{test.head, wait}, func(w *world) {
						var want error
						if fails {
							want = pipeline.ErrNotReplicated
						}
						wantErr(t, do(w).Err, want)
						sent, _, _ := strings.Cut(act, " ")
						if waits {
							sent += " wait"
						}
						w.sent(sent)
					}, withReplicas)
				}
				if !waits {
					return
				}
				run(t, []string{"-ERR x\r\n", one}, func(w *world) {
					wantErr(t, do(w).Err, errAny)
				}, withReplicas)
			})
		}
	}
}

// What operations on a claim send.
func TestActsAreSent(t *testing.T) {
	t.Parallel()
	claim, v := head(ourClaim), value(ours, "value")
	for name, test := range map[string]struct{ alone, replicated []string }{
		"extend":       {[]string{"extend", "1", claim, "60000", ""}, []string{"extend", "1", claim, "60000", "write"}},
		"settle":       {[]string{"settle", "1", claim, v, "3600000", "publish"}, []string{"settle", "1", claim, v, "3600000", "publish"}},
		"release":      {[]string{"release", "1", claim, "publish"}, []string{"release", "1", claim, "publish"}},
		"release hold": {[]string{"release", "1", claim, "publish"}, []string{"release", "1", claim, "publish", "write"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) { acts[name](w); w.sentFirst(test.alone...) })
			run(t, []string{absent, one}, func(w *world) { acts[name](w); w.sentFirst(test.replicated...) }, withReplicas)
		})
	}
}

// On a Cluster the end of a claim is published to one shard.
func TestClusterPublishes(t *testing.T) {
	t.Parallel()
	s := &scripted{scripts: scripts(t), rest: absent}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"127.0.0.1:1"}, Protocol: 2, DisableIdentity: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 1<<14 - 1, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
		},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return &connection{server: s}, nil },
	})
	group := background.NewGroup(context.Background())
	st := store.New(client, group, store.Config{Namespace: "ns", TTL: ttl, Config: pipeline.Config{OpTimeout: time.Minute}})
	st.Release(t.Context(), store.Namespace("ns").Key("key"), ours, nil, false)
	if last := s.sent[len(s.sent)-1]; last[0] != "release" || last[len(last)-1] != "spublish" {
		t.Errorf("sent: %q", s.sent)
	}
	if err := errors.Join(group.Close(context.Background()), client.Close()); err != nil {
		t.Error(err)
	}
}

// overrides are what an operator does to a key.
var overrides = map[string]func(w *world) error{
	"remove":      func(w *world) error { return w.override(store.Override{}) },
	"remove live": func(w *world) error { return w.override(store.Override{Live: true}) },
	"replace": func(w *world) error {
		return w.override(store.Override{Value: []byte(value(ours, "value")), TTL: hold})
	},
}

func (w *world) override(v store.Override) error {
	v.Operation, v.Head = "test", []byte(head(held))
	return w.Override(w.Context(), w.key, v)
}

// seen is what inspect.lua returns first, at the server's time 5.
var seen = inspected(heldLong[:53], hold, 57)

func inspected(s string, left time.Duration, size int) string {
	return "*2\r\n" + text(s) + text(fmt.Sprint(left.Milliseconds(), " ", size, " 5"))
}

// An override tells what it has found.
func TestOverride(t *testing.T) {
	t.Parallel()
	const live, late = "the lease has not run out", "the command came too late"
	for name, test := range map[string]struct {
		answers         []string
		remove, replace error
	}{
		"the claim":            {[]string{text(head(held))}, nil, nil},
		"nothing":              {[]string{absent}, nil, store.ErrChanged},
		"a live claim":         {[]string{text(live)}, store.ErrLive, store.ErrLive},
		"another claim":        {[]string{text(head(ourClaim))}, store.ErrChanged, store.ErrChanged},
		"another value":        {[]string{text(head(settled))}, store.ErrChanged, store.ErrChanged},
		"the new value":        {[]string{text(head(value(ours, "")))}, store.ErrChanged, nil},
		"foreign":              {[]string{text(foreign)}, store.ErrForeign, store.ErrForeign},
		"foreign, a head long": {[]string{text("foreign, and as long")}, store.ErrForeign, store.ErrForeign},
		"another type":         {[]string{"-WRONGTYPE x\r\n"}, store.ErrForeign, store.ErrForeign},
		"no reply":             {[]string{cut, cut, cut, cut}, errAny, errAny},
		"lost, then the claim": {[]string{cut, text(head(held))}, nil, nil},
		"too late":             {[]string{text(late)}, errAny, errAny},
		"lost, then live":      {[]string{cut, text(live)}, errAny, errAny},
		"lost, then foreign":   {[]string{cut, text(foreign)}, errAny, errAny},
		"lost, then a type":    {[]string{cut, "-WRONGTYPE x\r\n"}, errAny, errAny},
		"lost, then another":   {[]string{cut, text(head(ourClaim))}, errAny, errAny},
	} {
		for operation, do := range overrides {
			t.Run(operation+", "+name, in(append([]string{seen}, test.answers...), func(w *world) {
				want := test.remove
				if operation == "replace" {
					want = test.replace
				}
				err := do(w)
				wantErr(w.T, err, want)
				for _, refused := range []error{store.ErrChanged, store.ErrLive, store.ErrForeign} {
					if want == errAny && errors.Is(err, refused) {
						w.Errorf("%v: it may have been done", err)
					}
				}
			}))
		}
	}
}

// A claim whose lease has not run out is refused before anything is sent that could change it.
func TestLiveClaimIsNotOverridden(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"remove": store.ErrLive, "remove live": nil, "replace": store.ErrLive} {
		answers := []string{cut, inspected(heldLong[:53], hold+ttl, 57), text(head(held))}
		run(t, answers, func(w *world) {
			wantErr(t, overrides[name](w), want)
			sent := "inspect inspect"
			if want == nil {
				sent += " override"
			}
			w.sent(sent)
		})
	}
	for name, test := range map[string]struct {
		answers []string
		want    error
	}{
		"no numbers":   {[]string{pair(held, ttl)}, pipeline.ErrProtocol},
		"no time":      {[]string{granted("")}, pipeline.ErrProtocol},
		"foreign":      {[]string{inspected(foreign, ttl, 7)}, store.ErrForeign},
		"another type": {[]string{"-WRONGTYPE x\r\n"}, store.ErrForeign},
	} {
		run(t, test.answers, func(w *world) {
			if err := overrides["remove live"](w); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
		})
	}
}

// An override counts once the replicas have it.
func TestOverrideIsReplicated(t *testing.T) {
	t.Parallel()
	for name, do := range overrides {
		for wait, want := range map[string]error{one: nil, none: pipeline.ErrNotReplicated} {
			run(t, []string{seen, text(head(held)), wait}, func(w *world) { wantErr(t, do(w), want) }, withReplicas)
		}
		run(t, []string{seen, text(head(ourClaim)), none}, func(w *world) { wantErr(t, do(w), store.ErrChanged) }, withReplicas)
		run(t, []string{seen, "-ERR x\r\n", one}, func(w *world) {
			wantErr(t, do(w), errAny)
			until := fmt.Sprint(5 + opTimeout.Milliseconds())
			w.sentNth(1, map[string][]string{
				"remove":      {"override", "1", head(held), "publish", "", until, "", "0"},
				"remove live": {"override", "1", head(held), "publish", "live", until, "", "0"},
				"replace":     {"override", "1", head(held), "publish", "", until, value(ours, "value"), "3600000"},
			}[name]...)
		}, withReplicas)
	}
}

// Inspect and Abandoned tell what the key holds, and change nothing.
func TestInspect(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		want   store.Facts
		err    error
	}{
		"nothing": {granted("5"), store.Facts{Entry: store.Entry{State: store.Free}}, nil},
		"no time": {granted(""), store.Facts{}, pipeline.ErrProtocol},
		"claim": {inspected(held[:53], ttl, 57), store.Facts{
			Entry: entry(func(e *store.Entry) { e.Content, e.Left = nil, ttl }), Name: theirs.String(), Size: 57, TTL: ttl,
		}, nil},
		"hold": {inspected(heldLong[:53], hold, 57), store.Facts{
			Entry: entry(func(e *store.Entry) { e.State, e.Content, e.Left = store.Abandoned, nil, hold }),
			Name:  theirs.String(), Size: 57, TTL: hold, Hold: hold,
		}, nil},
		"value": {inspected(settled[:28], ttl, 33), store.Facts{
			Entry: store.Entry{State: store.Settled, At: claimed}, Name: "value-" + theirs.String(), Size: 33, TTL: ttl,
		}, nil},
		"foreign":    {inspected(foreign, ttl, 7), store.Facts{}, store.ErrForeign},
		"no numbers": {pair(held, ttl), store.Facts{}, pipeline.ErrProtocol},
		"error":      {"-WRONGTYPE x\r\n", store.Facts{}, store.ErrForeign},
	} {
		t.Run(name, in([]string{test.answer}, func(w *world) {
			got, err := w.Inspect(w.Context(), w.key)
			wantErr(w.T, err, test.err)
			if describe(got.Entry) != describe(test.want.Entry) || got.Name != test.want.Name || got.Size != test.want.Size ||
				got.TTL != test.want.TTL || got.Hold != test.want.Hold {
				w.Errorf("%+v, want %+v", got, test.want)
			}
		}))
	}
}

// Abandoned returns the note of a claim whose lease is over.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		err    error
	}{
		"abandoned":   {pair(heldLong, hold), nil},
		"live":        {pair(heldLong, hold+ttl), store.ErrLive},
		"nothing":     {granted(""), store.ErrChanged},
		"another":     {pair(claim(ours, "\x00", hold, "note"), hold), store.ErrChanged},
		"value":       {pair(settled, hold), store.ErrChanged},
		"foreign":     {pair(foreign, hold), store.ErrForeign},
		"other type":  {"-WRONGTYPE x\r\n", store.ErrForeign},
		"other error": {"-ERR x\r\n", errAny},
	} {
		t.Run(name, in([]string{test.answer}, func(w *world) {
			named := head(held)
			if name == "value" {
				named = head(settled)
			}
			note, err := w.Abandoned(w.Context(), w.key, []byte(named))
			wantErr(w.T, err, test.err)
			if (string(note) == "note") != (test.err == nil) {
				w.Errorf("the note is %q", note)
			}
			w.sentFirst("claim", "1", "", "", "0", "")
		}))
	}
}
