package store_test

import (
	"fmt"
	"testing"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// ourLock and theirLock are what a key holds that Acquire has taken.
var (
	ourLock   = claim(ours, "\x00", 0, string(ours[:])+"owner")
	theirLock = claim(theirs, "\x00", 0, string(theirs[:])+"owner")
)

// What Resume returns by what the server answers. It takes over their lock, and makes it ours.
func TestResume(t *testing.T) {
	t.Parallel()
	free, granted := granted(""), granted("0000000000000008")
	for name, test := range map[string]struct {
		answers []string
		want    error
		fence   int64
		opt     func(*store.Config)
	}{
		"resumed":              {answers: []string{granted}, fence: 8},
		"a lost reply":         {answers: []string{cut, granted}, fence: 8},
		"nothing":              {answers: []string{free}, want: store.ErrLost},
		"another lock":         {answers: []string{pair(ourLock, ttl)}, want: store.ErrLost},
		"their claim":          {answers: []string{pair(held, ttl)}, want: store.ErrLost},
		"their long claim":     {answers: []string{pair(heldLong, hold)}, want: store.ErrLost},
		"another claim":        {answers: []string{pair(ourClaim, ttl)}, want: store.ErrLost},
		"a value":              {answers: []string{pair(settled, hold)}, want: store.ErrLost},
		"foreign":              {answers: []string{pair(foreign, ttl)}, want: store.ErrForeign},
		"another type":         {answers: []string{"-WRONGTYPE x\r\n"}, want: store.ErrForeign},
		"a malformed fence":    {answers: []string{"*2\r\n$-1\r\n" + text("x")}, want: errAny},
		"an error":             {answers: []string{"-ERR x\r\n"}, want: errAny},
		"no reply at all":      {answers: []string{cut, cut, cut, cut}, want: errAny},
		"replicated":           {answers: []string{granted, one}, fence: 8, opt: withReplicas},
		"not replicated":       {answers: []string{granted, none}, want: pipeline.ErrNotReplicated, opt: withReplicas},
		"lost, replicated":     {answers: []string{cut, cut, granted, one}, fence: 8, opt: withReplicas},
		"free, not replicated": {answers: []string{free, none}, want: store.ErrLost, opt: withReplicas},
	} {
		t.Run(name, in(test.answers, func(w *world) {
			e, err := w.Resume(w.Context(), w.key, theirs, ours, w.begin, "owner")
			wantErr(w.T, err, test.want)
			if err == nil && (e.State != store.Granted || e.Fence != test.fence || e.Written != nil || e.MayReturn) {
				w.Errorf("%+v", e)
			}
		}, test.opt))
	}
}

// What Resume sends: under a key that it loses, nothing more.
func TestResumeIsSent(t *testing.T) {
	t.Parallel()
	after := unfenced(ours, "\x00", 0, string(ours[:])+"owner")[37:]
	ms := fmt.Sprint(ttl.Milliseconds())
	resume := func(w *world) { _, _ = w.Resume(w.Context(), w.key, theirs, ours, w.begin, "owner") }
	run(t, []string{granted("")}, func(w *world) {
		resume(w)
		w.sentOnly("resume", "1", head(theirLock), head(ourLock), after, ms)
	})
	run(t, []string{granted("")}, func(w *world) {
		resume(w)
		w.sentOnly("resume", "2", fenceKey, head(theirLock), head(ourLock), after, ms)
	}, withFencing)
}
