package lock_test

import (
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// TryAcquire and Acquire join the lease that NewContext has put into their context, for its key and its Locker, and send
// nothing. The last Release frees the key.
func TestReentry(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		locker, rival := newLocker(t, p.Client(t)), newLocker(t, b.Client(t))
		outer, another := acquire(t, locker, "k"), acquire(t, locker, "another")
		ctx := lock.NewContext(lock.NewContext(t.Context(), outer), another) // both are found
		p.Reset()
		inner, _, tryErr := locker.TryAcquire(ctx, "k")
		third, err := locker.Acquire(lock.NewContext(ctx, errorless(t, inner, tryErr)), "k")
		if errorless(t, third, err); len(p.Commands()) > 0 {
			t.Errorf("to join has sent %q", p.Commands())
		}
		if inner.Token() != outer.Token() || inner.Fence() != outer.Fence() || !inner.Until().Equal(outer.Until()) {
			t.Error("it is another lease")
		}
		for what, try := range map[string]func() (*lock.Lease, bool, error){
			"without the context": func() (*lock.Lease, bool, error) { return locker.TryAcquire(t.Context(), "k") },
			"another Locker":      func() (*lock.Lease, bool, error) { return rival.TryAcquire(ctx, "k") },
		} {
			if _, ok, err := try(); ok || err != nil {
				t.Errorf("%s: %v, %v", what, ok, err)
			}
		}
		if claim, err := locker.Claim(ctx, "k", nil, 0); err != nil || claim.State != lock.Held {
			t.Errorf("Claim: %v, %v", claim.State, err)
		}
		for _, lease := range []*lock.Lease{outer, third, inner} {
			inspect(t, rival, "k", lock.Held)
			release(t, lease)
		}
		inspect(t, rival, "k", lock.Free)
		if anew, ok, err := locker.TryAcquire(ctx, "k"); !ok || err != nil || anew.Token() == outer.Token() {
			t.Errorf("afterwards: %v, %v", ok, err)
		}
	})
}
