package operate

import (
	"strings"
	"testing"

	"github.com/onceguard/onceguard/lock"
)

// An operator asks by a lock's name who holds it, and frees it.
func TestLock(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		named := []string{"-namespace", "shop", "-lock", "nightly report"}
		run := func(command string, args ...string) result {
			return s.run(append([]string{command}, append(args, named...)...)...)
		}
		key := s.locker.StorageKey("nightly report")
		run("inspect").want(t, exitFree, "key      "+key, `made of  namespace "shop" and lock "nightly report"`, "free")

		lease, err := s.locker.Acquire(lock.NewOwnerContext(t.Context(), `batch-7 "nightly"`), "nightly report")
		if err != nil {
			t.Fatal(err)
		}
		run("inspect").want(t, exitDone, key, "held: it is a lock, and its holder is at work", `owner    batch-7 "nightly"`, "claimed  20")
		run("inspect", "-json").want(t, exitDone, `"lock":true,"owner":"batch-7 \"nightly\""`, `"claimed_at":"20`)
		s.run("scan", "-namespace", "shop", "-rate", "100000").want(t, exitDone, key, `ago by batch-7 "nightly"`)
		s.run("scan", "-json", "-namespace", "shop", "-rate", "100000").want(t, exitDone, `"owner":"batch-7 \"nightly\""`)

		change := []string{"-token", lease.Token(), "-reason", "ticket 9"}
		run("forget", change...).want(t, exitRefused, "the lease has not run out")
		run("forget", append(change, "-even-if-live")...).want(t, exitDone, "forgotten: it was held; the next caller gets it", "key="+key)
		run("inspect").want(t, exitFree)
		if next, ok, err := s.locker.TryAcquire(t.Context(), "nightly report"); !ok || err != nil {
			t.Errorf("the lock is not free: %t, %v", ok, err)
		} else if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}

		for _, args := range [][]string{
			{"inspect", "-namespace", "shop", "-lock", "l", key},
			{"inspect", "-namespace", "shop", "-lock", "l", "-anonymous", "-path", "/", "-key", "k"},
		} {
			s.run(args...).want(t, exitUsage, "only one of them")
		}
		s.run("inspect", "-lock", "l").want(t, exitUsage, "-namespace is missing")
		s.run("resolve", "-lock", "l").want(t, exitUsage, "-lock")
		s.run("scan", "-lock", "l").want(t, exitUsage, "-lock")
	})
}

// The key of a request has no owner, and a run is not called a lock.
func TestRunIsNoLock(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.post("k1")
		for _, args := range [][]string{{"inspect", s.strand("k2")}, {"scan", "-namespace", "shop"}, {"scan", "-json", "-namespace", "shop"}} {
			if r := s.run(args...); strings.Contains(r.stdout, "lock") || strings.Contains(r.stdout, "owner") || r.code != exitDone {
				t.Errorf("%+v", r)
			}
		}
	})
}
