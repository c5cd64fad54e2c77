package store_test

import (
	"slices"
	"testing"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// What FindNatives hears.
var (
	redis84  = []string{absent, none}
	valkey90 = []string{absent, "-ERR unknown command\r\n", none}
	valkey81 = []string{absent, "-ERR unknown command\r\n", "-ERR unknown command\r\n"}
	redis70  = append([]string{"-ERR syntax error\r\n"}, valkey81[1:]...)
	limited  = []string{absent, "-NOPERM x\r\n", "-NOPERM x\r\n"}
)

// Settle and Release send a native command if the server has it, and then the script if the key did not hold exactly our
// claim.
func TestNatives(t *testing.T) {
	t.Parallel()
	settle := func(w *world) store.Found {
		return w.Settle(w.Context(), w.key, ours, []byte(ourClaim), []byte(value(ours, "value")), hold)
	}
	release := func(w *world) store.Found { return w.Release(w.Context(), w.key, ours, []byte(ourClaim), false) }
	swap := []string{"set", value(ours, "value"), "ifeq", ourClaim, "px", "3600000"}
	for name, test := range map[string]struct {
		server  []string
		act     func(w *world) store.Found
		answers []string
		want    store.Found
		sent    string
		first   []string // the first command in full
	}{
		"settle":                {redis84, settle, []string{"+OK\r\n"}, store.Found{Holder: store.Ours}, "set", swap},
		"settle, marked":        {redis84, settle, []string{absent, text(head(ourClaim))}, store.Found{Holder: store.Ours}, "set settle", swap},
		"settle, absent":        {redis84, settle, []string{absent, absent}, store.Found{Holder: store.Nobody}, "set settle", swap},
		"settle, another":       {redis84, settle, []string{absent, text(head(held))}, store.Found{Holder: store.Another}, "set settle", swap},
		"settle, foreign":       {redis84, settle, []string{"-WRONGTYPE x\r\n"}, store.Found{Holder: store.Another}, "set", swap},
		"settle, a lost reply":  {redis84, settle, []string{cut, absent, text(head(value(ours, "")))}, store.Found{Holder: store.OurValue, Unsure: true}, "set set settle", swap},
		"settle, a refusal":     {redis84, settle, []string{"-ERR syntax error\r\n", text(head(ourClaim))}, store.Found{Holder: store.Ours}, "set settle", swap},
		"settle, full":          {redis84, settle, []string{"-OOM x\r\n"}, store.Found{Err: errAny}, "set", swap},
		"settle, valkey 8.1":    {valkey81, settle, []string{"+OK\r\n"}, store.Found{Holder: store.Ours}, "set", swap},
		"settle, redis 7.0":     {redis70, settle, []string{text(head(ourClaim))}, store.Found{Holder: store.Ours}, "settle", nil},
		"release":               {redis84, release, []string{one}, store.Found{Holder: store.Ours}, "delex", []string{"delex", "ifeq", ourClaim}},
		"release, valkey":       {valkey90, release, []string{one}, store.Found{Holder: store.Ours}, "delifeq", []string{"delifeq", ourClaim}},
		"release, marked":       {redis84, release, []string{none, text(head(ourClaim))}, store.Found{Holder: store.Ours}, "delex release", nil},
		"release, absent":       {valkey90, release, []string{none, absent}, store.Found{Holder: store.Nobody}, "delifeq release", nil},
		"release, another":      {redis84, release, []string{none, text(head(held))}, store.Found{Holder: store.Another}, "delex release", nil},
		"release, a lost reply": {redis84, release, []string{cut, none, absent}, store.Found{Holder: store.Nobody, Unsure: true}, "delex delex release", nil},
		"release, limited":      {limited, release, []string{text(head(ourClaim))}, store.Found{Holder: store.Ours}, "release", nil},
		"release, valkey 8.1":   {valkey81, release, []string{absent}, store.Found{Holder: store.Nobody}, "release", nil},
	} {
		t.Run(name, in(slices.Concat(test.server, test.answers), func(w *world) {
			w.findNatives()
			got := test.act(w)
			wantErr(w.T, got.Err, test.want.Err)
			if got.Holder != test.want.Holder || got.Unsure != test.want.Unsure {
				w.Errorf("%+v, want %+v", got, test.want)
			}
			w.sent(test.sent)
			if test.first != nil {
				w.sentFirst(test.first...)
			}
		}))
	}
}

// Only scripts are sent without FindNatives, if the claim is not known, under WithReplicas, and once the server has
// refused the command.
func TestNoNatives(t *testing.T) {
	t.Parallel()
	act := func(w *world, written []byte) {
		w.Settle(w.Context(), w.key, ours, written, []byte(value(ours, "value")), hold)
		w.Release(w.Context(), w.key, ours, written, false)
	}
	for name, test := range map[string]struct {
		answers []string
		written []byte
		opts    func(*store.Config)
		finds   bool
		sent    string
	}{
		"not found":      {nil, []byte(ourClaim), nil, false, "settle release"},
		"not known":      {redis84, nil, nil, true, "settle release"},
		"replicas":       {redis84, []byte(ourClaim), withReplicas, true, "settle wait release"},
		"refused before": {slices.Concat(redis84, []string{"-ERR syntax error\r\n", absent, "-NOPERM x\r\n", absent}), []byte(ourClaim), nil, true, "set settle delex release settle release"},
	} {
		t.Run(name, in(test.answers, func(w *world) {
			if test.finds {
				w.findNatives()
			}
			act(w, test.written)
			if name == "refused before" {
				act(w, test.written)
			}
			w.sent(test.sent)
		}, test.opts))
	}
}

// An error that is no refusal is returned, and nothing counts as found.
func TestFindNativesFails(t *testing.T) {
	t.Parallel()
	run(t, []string{cut, cut, cut, cut}, func(w *world) {
		wantErr(t, w.FindNatives(w.Context(), w.key), errAny)
		w.Settle(w.Context(), w.key, ours, []byte(ourClaim), []byte(value(ours, "value")), hold)
		w.sent("set set set set settle")
	})
}

// A claim that SET has written is known, and one that claim.lua has written is not: it may have a fence.
func TestWritten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers []string
		opts    func(*store.Config)
		known   bool
	}{
		"set":                      {[]string{absent}, nil, true},
		"set, the reply was lost":  {[]string{cut, text(ourClaim)}, nil, true},
		"script":                   {[]string{granted("0000000000000007")}, withFencing, false},
		"script of an old version": {[]string{"-ERR syntax error\r\n", "*2\r\n$-1\r\n" + text("")}, nil, false},
	} {
		t.Run(name, in(test.answers, func(w *world) {
			e, err := w.Claim(w.Context(), w.key, ours, claimed, store.ClaimOptions{})
			if e.Written != nil != test.known {
				w.Errorf("%q, %v", e.Written, err)
			}
		}, test.opts))
	}
}

// findNatives calls FindNatives, and forgets what it has sent.
func (w *world) findNatives() {
	w.Helper()
	wantErr(w.T, w.FindNatives(w.Context(), w.key), nil)
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.sent = nil
}
