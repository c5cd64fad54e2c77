package store_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// The tokens of our lease and of another one.
var ours, theirs = store.NewToken(), store.NewToken()

// claimed is when the clock of a bubble begins.
var claimed = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// claim returns what a key holds that is claimed at that time, without a fence.
func claim(token uuid.UUID, mark string, hold time.Duration, note string) string {
	b := append([]byte("OGc\x01"), token[:]...)
	b = append(append(b, mark...), "0000000000000007"...)
	b = binary.BigEndian.AppendUint64(b, uint64(hold.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(claimed.UnixMilli()))
	return string(append(b, note...))
}

// value returns what a settled key holds.
func value(token uuid.UUID, content string) string {
	return string(append(store.NewValue(token, claimed, len(content)), content...))
}

func head(stored string) string { return stored[:20] }

var (
	held      = claim(theirs, "\x00", 0, "note")
	heldLong  = claim(theirs, "\x00", hold, "note")
	ourClaim  = claim(ours, "\x01", 0, "note")
	settled   = value(theirs, "value")
	foreign   = "foreign"
	heldEntry = store.Entry{State: store.Held, Content: []byte("note"), At: claimed, Fence: 7}
)

// describe returns what callers see of an Entry.
func describe(e store.Entry) string {
	return fmt.Sprintf("%d %q at %d, fence %d, may return %v, left %v",
		e.State, e.Content, e.At.UnixMilli(), e.Fence, e.MayReturn, e.Left)
}

func entry(change func(e *store.Entry)) store.Entry {
	e := heldEntry
	change(&e)
	return e
}

var (
	own          = store.Entry{State: store.Granted, Left: ttl}
	mayReturn    = func(e *store.Entry) { e.MayReturn = true }
	ownAgain     = store.Entry{State: store.Granted, Left: ttl, Fence: 7, MayReturn: true}
	settledEntry = store.Entry{State: store.Settled, Content: []byte("value"), At: claimed}
	unsure       = store.Entry{MayReturn: true}
)

// unfenced returns a claim as it is sent, with the fence 0.
func unfenced(token uuid.UUID, mark string, hold time.Duration, note string) string {
	return strings.Replace(claim(token, mark, hold, note), "0000000000000007", "0000000000000000", 1)
}

// Claim returns what the key holds by what the server answers, and has a claim released that no caller gets.
func TestClaim(t *testing.T) {
	t.Parallel()
	waits := store.ClaimOptions{Waits: true}
	holds := store.ClaimOptions{Hold: hold}
	for name, test := range map[string]struct {
		answers []string
		opts    store.ClaimOptions
		config  func(*store.Config)
		want    store.Entry
		err     error
		sent    string
	}{
		"free":                   {[]string{absent}, holds, nil, own, nil, "set"},
		"held":                   {[]string{text(held)}, holds, nil, heldEntry, nil, "set"},
		"held, without a note":   {[]string{text(held[:53])}, holds, nil, entry(func(e *store.Entry) { e.Content = nil }), nil, "set"},
		"settled":                {[]string{text(settled)}, holds, nil, settledEntry, nil, "set"},
		"settled, empty":         {[]string{text(settled[:28])}, holds, nil, store.Entry{State: store.Settled, At: claimed}, nil, "set"},
		"foreign":                {[]string{text(foreign)}, holds, nil, store.Entry{}, store.ErrForeign, "set"},
		"a claim that is cut":    {[]string{text(held[:52])}, holds, nil, store.Entry{}, store.ErrForeign, "set"},
		"a value that is cut":    {[]string{text(settled[:27])}, holds, nil, store.Entry{}, store.ErrForeign, "set"},
		"foreign, short":         {[]string{text("x")}, holds, nil, store.Entry{}, store.ErrForeign, "set"},
		"a magic alone":          {[]string{text("OGc\x01")}, holds, nil, store.Entry{}, store.ErrForeign, "set"},
		"another magic":          {[]string{text("OGc\x02" + held[4:])}, holds, nil, store.Entry{}, store.ErrForeign, "set"},
		"a fence of letters":     {[]string{text(held[:21] + "a" + held[22:])}, holds, nil, store.Entry{}, store.ErrForeign, "set"},
		"another type":           {[]string{"-WRONGTYPE x\r\n"}, holds, nil, store.Entry{}, store.ErrForeign, "set"},
		"an error, not executed": {[]string{"-ERR x\r\n"}, holds, nil, store.Entry{}, errAny, "set"},

		"hold, its lease runs": {
			[]string{text(heldLong), pair(heldLong, hold+time.Second)}, holds, nil,
			entry(func(e *store.Entry) { e.Left = time.Second }), nil, "set claim",
		},
		"hold, in the lease's last millisecond": {
			[]string{text(heldLong), pair(heldLong, hold+time.Millisecond)}, holds, nil,
			entry(func(e *store.Entry) { e.Left = time.Millisecond }), nil, "set claim",
		},
		"hold, its lease is over": {
			[]string{text(heldLong), pair(heldLong, hold)}, holds, nil,
			entry(func(e *store.Entry) { e.State, e.Left = store.Abandoned, hold }), nil, "set claim",
		},
		"hold, and gone since": {
			[]string{text(heldLong), granted("0000000000000000")}, holds, nil, own, nil, "set claim",
		},
		"hold, and foreign since": {
			[]string{text(heldLong), pair(foreign, hold)}, holds, nil, store.Entry{}, store.ErrForeign, "set claim",
		},
		"hold, and an error since": {
			[]string{text(heldLong), "-ERR x\r\n"}, holds, nil, heldEntry, nil, "set claim",
		},
		"hold, and no answer since": {
			[]string{text(heldLong), cut, cut, cut, cut}, store.ClaimOptions{}, nil, entry(mayReturn), nil,
			"set claim claim claim claim release",
		},

		"the reply is lost": {[]string{cut, text(ourClaim)}, holds, nil, ownAgain, nil, "set set"},
		"the reply is lost, denied by a hold": {
			[]string{cut, text(heldLong), pair(heldLong, hold)}, store.ClaimOptions{}, nil,
			entry(func(e *store.Entry) { e.State, e.Left, e.MayReturn = store.Abandoned, hold, true }), nil, "set set claim release",
		},
		"the reply is lost, and the claim": {
			[]string{cut, absent}, holds, nil, store.Entry{State: store.Granted, Left: ttl, MayReturn: true}, nil, "set set",
		},
		"the reply is lost, denied": {
			[]string{cut, text(held)}, store.ClaimOptions{}, nil, entry(mayReturn), nil, "set set release",
		},
		"the reply is lost, denied, hold": {
			[]string{cut, text(held)}, holds, nil, entry(mayReturn), nil, "set set release",
		},
		"all replies are lost":       {[]string{cut, cut, cut, cut}, store.ClaimOptions{}, nil, unsure, errAny, "set set set set release"},
		"all replies are lost, hold": {[]string{cut, cut, cut, cut}, holds, nil, unsure, errAny, "set set set set release"},
		"our claim is malformed":     {[]string{cut, text(ourClaim[:30])}, holds, nil, unsure, store.ErrForeign, "set set release"},

		"Redis 6.0": {
			[]string{"-ERR syntax error\r\n", granted("0000000000000000")}, holds, nil, own, nil, "set claim",
		},
		"Redis 6.0, hold": {
			[]string{"-ERR syntax error\r\n", pair(heldLong, hold+time.Second)}, holds, nil,
			entry(func(e *store.Entry) { e.Left = time.Second }), nil, "set claim",
		},
		"Redis 6.0, hold, and never expires": {
			[]string{"-ERR syntax error\r\n", pair(heldLong, -time.Millisecond)}, holds, nil,
			entry(func(e *store.Entry) { e.State, e.Left = store.Abandoned, -time.Millisecond }), nil, "set claim",
		},
		"full, settled": {[]string{"-OOM x\r\n", pair(settled, hold)}, holds, nil, settledEntry, nil, "set claim"},
		"full, free": {
			[]string{"-OOM x\r\n", granted("")}, holds, nil, store.Entry{}, errAny, "set claim",
		},
		"full, and does not answer": {
			[]string{"-OOM x\r\n", cut}, holds, nil, store.Entry{}, errAny, "set claim",
		},

		"fencing": {
			[]string{granted("0000000000000042")}, holds, withFencing,
			store.Entry{State: store.Granted, Left: ttl, Fence: 42}, nil, "claim",
		},
		"fencing, no number": {
			[]string{granted("fence")}, holds, withFencing, store.Entry{}, errAny, "claim release",
		},
		"waits": {
			[]string{pair(held, time.Second)}, waits, nil, entry(func(e *store.Entry) { e.Left = time.Second }), nil, "claim",
		},
		"waits, and the key never expires": {
			[]string{pair(held, -time.Millisecond)}, waits, nil, entry(func(e *store.Entry) { e.Left = -time.Millisecond }), nil, "claim",
		},
		"waits, settled": {[]string{pair(settled, hold)}, waits, nil, settledEntry, nil, "claim"},

		"replicas":          {[]string{absent, one}, holds, withReplicas, own, nil, "set wait"},
		"replicas, too few": {[]string{absent, none}, holds, withReplicas, store.Entry{}, pipeline.ErrNotReplicated, "set wait release wait"},
		"replicas, fencing": {
			[]string{granted("0000000000000042"), one}, holds, func(c *store.Config) { withFencing(c); withReplicas(c) },
			store.Entry{State: store.Granted, Left: ttl, Fence: 42}, nil, "claim wait",
		},
		"replicas, held": {[]string{text(held), none}, holds, withReplicas, heldEntry, nil, "set wait"},
		"replicas, the reply is lost": {
			[]string{cut, one, text(ourClaim), none, text(head(ourClaim)), one}, holds, withReplicas, ownAgain, nil,
			"set wait set wait extend wait",
		},
		"replicas, the reply is lost, too few": {
			[]string{cut, one, text(ourClaim), one, text(head(ourClaim)), none}, holds, withReplicas, unsure,
			pipeline.ErrNotReplicated, "set wait set wait extend wait release wait",
		},
		"replicas, the reply is lost, error": {
			[]string{cut, one, text(ourClaim), one, "-ERR x\r\n", none}, holds, withReplicas, unsure,
			errAny, "set wait set wait extend wait release wait",
		},
		"replicas, settled":          {[]string{text(settled), none, text(head(settled)), one}, holds, withReplicas, settledEntry, nil, "set wait confirm wait"},
		"replicas, settled, too few": {[]string{text(settled), one, text(head(settled)), none}, holds, withReplicas, store.Entry{}, store.ErrSettled, "set wait confirm wait"},
		"replicas, settled, changed": {[]string{text(settled), one, absent, one}, holds, withReplicas, store.Entry{}, store.ErrSettled, "set wait confirm wait"},
		"replicas, settled, error": {
			[]string{text(settled), one, "-ERR x\r\n", one}, holds, withReplicas, store.Entry{},
			store.ErrSettled, "set wait confirm wait",
		},
		"replicas, hold, and gone since, too few": {
			[]string{text(heldLong), one, granted("0000000000000000"), none}, holds, withReplicas, heldEntry, nil,
			"set wait claim wait release wait",
		},
		"replicas, hold, and settled since": {
			[]string{text(heldLong), one, pair(settled, hold), one, text(head(settled)), none}, holds, withReplicas,
			store.Entry{}, store.ErrSettled, "set wait claim wait confirm wait",
		},
	} {
		t.Run(name, in(test.answers, func(w *world) {
			e, err := w.Claim(w.Context(), w.key, w.token, w.begin, test.opts)
			if got, want := describe(e), describe(test.want); got != want {
				w.Errorf("got  %s\nwant %s", got, want)
			}
			wantErr(w.T, err, test.err)
			w.sent(test.sent)
		}, test.config))
	}
}

// A claim is written with its mark, its hold and its note, and expires after its lease and its hold.
func TestClaimIsWritten(t *testing.T) {
	t.Parallel()
	note := strings.Repeat("n", 100)
	opts := map[string]store.ClaimOptions{
		"":        {Note: []byte("note")},
		"hold":    {Note: []byte("note"), Hold: hold},
		"awaited": {Note: []byte("note"), Awaited: true},
		"long":    {Note: []byte(note)},
		"waits":   {Note: []byte("note"), Waits: true},
	}
	for name, test := range map[string]struct {
		opts    string
		config  func(*store.Config)
		answers []string
		want    []string // the key is left out
	}{
		"set":         {"", nil, nil, []string{"set", unfenced(ours, "\x00", 0, "note"), "nx", "get", "px", "9000"}},
		"set awaited": {"awaited", nil, nil, []string{"set", unfenced(ours, "\x01", 0, "note"), "nx", "get", "px", "9000"}},
		"set hold":    {"hold", nil, nil, []string{"set", unfenced(ours, "\x00", hold, "note"), "nx", "get", "px", "3609000"}},
		"set long":    {"long", nil, nil, []string{"set", unfenced(ours, "\x00", 0, note), "nx", "get", "px", "9000"}},
		"script": {
			"", withFencing, []string{granted("0000000000000042")},
			[]string{"claim", "2", fenceKey, head(ourClaim) + "\x00", unfenced(ours, "", 0, "note")[36:], "9000", ""},
		},
		"script hold": {
			"hold", withFencing, []string{granted("0000000000000042")},
			[]string{"claim", "2", fenceKey, head(ourClaim) + "\x00", unfenced(ours, "", hold, "note")[36:], "3609000", ""},
		},
		"script waits": {
			"waits", nil, []string{granted("0000000000000000")},
			[]string{"claim", "1", head(ourClaim) + "\x00", unfenced(ours, "", 0, "note")[36:], "9000", "OGc\x01"},
		},
	} {
		t.Run(name, in(test.answers, func(w *world) {
			e, err := w.Claim(w.Context(), w.key, w.token, w.begin, opts[test.opts])
			if e.State != store.Granted || err != nil {
				w.Errorf("%s, %v", describe(e), err)
			}
			w.sentOnly(test.want...)
		}, test.config))
	}
}

// A claim whose caller gave up is released, again 2 s later, and if its reply comes late and does not show that the key is
// another's.
func TestLateClaim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers []string
		sent    string
	}{
		"granted":   {[]string{late(absent)}, "set release release release"}, // for the error, for the reply, and once more
		"ours":      {[]string{late(text(ourClaim))}, "set release release release"},
		"another's": {[]string{late(text(held))}, "set release release"},
		"an error":  {[]string{late("-ERR x\r\n")}, "set release release"},
		"none":      {[]string{late(cut)}, "set release release release"},
	} {
		t.Run(name, in(test.answers, func(w *world) {
			e, err := w.Claim(w.Context(), w.key, w.token, w.begin, store.ClaimOptions{})
			if got := describe(e); got != describe(unsure) || err == nil || time.Since(w.begin) != opTimeout {
				w.Errorf("%s, %v, after %v", got, err, time.Since(w.begin))
			}
			time.Sleep(2 * opTimeout)
			w.sent(test.sent)
		}))
	}
}

// The second command of a Claim, a look at a claim under a hold, has the time that the first has left.
func TestSecondCommandHasTheTimeThatRemains(t *testing.T) {
	t.Parallel()
	run(t, []string{after(opTimeout/2, text(heldLong)), late(cut)}, func(w *world) {
		e, err := w.Claim(w.Context(), w.key, w.token, w.begin, store.ClaimOptions{})
		if took := time.Since(w.begin); e.State != store.Held || err != nil || took != opTimeout {
			t.Errorf("%s, %v after %v", describe(e), err, took)
		}
	})
}

// Look takes nothing. It marks a claim only for a caller that waits.
func TestLook(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		waits   bool
		answers []string
		want    store.Entry
		err     error
	}{
		"free":    {true, []string{granted("")}, store.Entry{State: store.Free}, nil},
		"held":    {false, []string{pair(held, ttl)}, entry(func(e *store.Entry) { e.Left = ttl }), nil},
		"settled": {false, []string{pair(settled, ttl)}, settledEntry, nil},
		"foreign": {false, []string{pair(foreign, ttl)}, store.Entry{}, store.ErrForeign},
		"error":   {true, []string{"-ERR x\r\n"}, store.Entry{}, errAny},
	} {
		t.Run(name, in(test.answers, func(w *world) {
			e, err := w.Look(w.Context(), w.key, test.waits)
			if got, want := describe(e), describe(test.want); got != want {
				w.Errorf("got  %s\nwant %s", got, want)
			}
			wantErr(w.T, err, test.err)
			mark := ""
			if test.waits {
				mark = "OGc\x01"
			}
			w.sentFirst("claim", "1", "", "", "0", mark)
		}))
	}
}
