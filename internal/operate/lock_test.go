package operate

import (
	"strings"
	"testing"
	"time"

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

// fault: a lock holds the value of Lease.Settle, which is no record of a run. Expected: inspect does not call it damaged, and
// neither of a settled nor of a free lock does it speak of retries or a journal.
func TestSettledLock(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		run := func(code int, want string, args ...string) {
			t.Helper()
			r := s.run(append(args, "-namespace", "shop", "-lock", "nightly")...)
			r.want(t, code, want)
			for _, word := range []string{"stored", "retr", "409", "journal", "run"} {
				if strings.Contains(r.stdout, word) {
					t.Errorf("%q in\n%s", word, r.stdout)
				}
			}
		}
		const isFree = "free: nobody holds it, or its name is mistyped; the next caller gets it"
		run(exitFree, isFree, "inspect")

		lease, err := s.locker.Acquire(t.Context(), "nightly")
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Settle(t.Context(), []byte("done at 4"), time.Hour); err != nil {
			t.Fatal(err)
		}
		run(exitDone, "settled: its holder has settled it (lock.Lease.Settle); until this ends, callers get lock.ErrSettled", "inspect")
		run(exitDone, "ends     in ", "inspect")
		run(exitDone, `"state":"settled"`, "inspect", "-json")
		token := s.token(s.locker.StorageKey("nightly"))
		run(exitDone, "forgotten: it was settled; the next caller gets it", "forget", "-token", token, "-reason", "r")
		run(exitFree, isFree, "forget", "-token", token, "-reason", "r")
	})
}
