package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A service without Redis: each command works on the rows.
func TestNoRedis(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		run := func(args ...string) result {
			return onceguard(t, map[string]string{"REDIS_URL": "none", "JOURNAL_URL": s.url}, args...)
		}
		key := s.strand("k1")
		r := run("inspect", key)
		r.want(done, "state    abandoned: ", "redis    none", "journal  unfinished")
		if strings.Contains(r.stdout, "in Redis") || r.stderr != "" {
			t.Errorf("%+v", r)
		}
		run("scan", "-namespace", "shop").want(done, "abandoned  "+key, "found 0 held and 1 abandoned")
		run("resolve", "-token", s.token(key), "-reason", "booked", "-status", "202", key).want(done, "resolved")
		if w := s.post("k1"); w.Code != http.StatusAccepted || s.runs != 1 {
			t.Errorf("%d %s, %d runs", w.Code, w.Body, s.runs)
		}
		s.redis.FlushAll()
		run("forget", "-token", s.token(key), "-reason", "r", key).want(done, "forgotten")
		run("inspect", key).want(free, "state    free: the journal has no such key: it may be mistyped. The next try with it runs\n")
		run("forget", "-token", "t", "-reason", "r", key).want(free, "nothing was changed")
		run("inspect", "none").want(usage, "-namespace is missing")
		run("inspect", "-namespace", "shop", "none").want(usage, "not a storage key")
	})
}

// fault: Redis does not answer, from the beginning or later. Expected: inspect says what the journal has and that Redis was
// not asked, never that the key is free; the others change nothing.
func TestRedisIsDown(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key, token := s.strand("k1"), ""
		const unused = "01234567-89ab-4def-8123-456789abcdef"
		other := s.locker.StorageKey("other")
		for what, redisURL := range map[string]string{"refused": "redis://127.0.0.1:1", "loading": "redis://" + s.redis.Addr()} {
			s.redis.SetError("LOADING Redis is loading the dataset in memory")
			run := func(args ...string) result {
				return onceguard(t, map[string]string{"REDIS_URL": redisURL, "JOURNAL_URL": s.url}, args...)
			}
			r := run("inspect", key)
			r.want(failed, "state    abandoned: ", "redis    unknown", "journal  unfinished", "onceguard: only the journal was asked: ")
			run("inspect", "-json", key).want(failed, `"state":"abandoned"`, `"redis":"unknown"`)
			run("inspect", other).want(failed, "runs, unless Redis has its outcome")
			run("scan", "-namespace", "shop").want(failed)
			_, token, _ = strings.Cut(r.stdout, "token    ")
			token, _, _ = strings.Cut(token, "\n")
			run("resolve", "-token", token, "-reason", "r", "-status", "202", key).want(failed)
			run("forget", "-token", unused, "-reason", "r", other).want(failed)
			s.redis.SetError("")
			if w := s.post("k1"); w.Code != http.StatusConflict {
				t.Errorf("%s: it is resolved: %d", what, w.Code)
			}
			s.redis.FastForward(time.Minute)
			r = onceguard(t, map[string]string{"REDIS_URL": redisURL, "JOURNAL_URL": "postgres://127.0.0.1:1/db"}, "inspect", key)
			r.want(failed, "sqljournal: inspect: ")
			if strings.Contains(r.stderr, "onceguard: redis: ") != (what == "refused") || strings.Count(r.stderr, "sqljournal: ") != 1 {
				t.Errorf("Redis %s: %s", what, r.stderr)
			}
		}
		s.run("resolve", "-redis", "none", "-token", token, "-reason", "r", "-status", "202", key).want(done, "resolved")
		if w := s.post("k1"); w.Code != http.StatusAccepted || s.runs != 1 {
			t.Errorf("%d %s, %d runs", w.Code, w.Body, s.runs)
		}
	})
}

// fault: the journal's database, or Redis, does not answer while an operator asks for a lock, of which no journal has a row.
// Expected: the command needs Redis alone, and never says that a lock is free which it could not see.
func TestLockBesideAJournal(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		inspect := func(redis, journal string) result {
			return onceguard(t, map[string]string{"REDIS_URL": redis, "JOURNAL_URL": journal}, "inspect", "-namespace", "shop", "-lock", "nightly")
		}
		const down = "postgres://127.0.0.1:1/db"
		r := inspect("redis://"+s.redis.Addr(), down)
		r.want(free, "state    free: nobody holds it, or its name is mistyped; the next caller gets it\n")
		lease, err := s.locker.Acquire(t.Context(), "nightly")
		if err != nil {
			t.Fatal(err)
		}
		r = inspect("redis://"+s.redis.Addr(), down)
		r.want(done, "state    held: it is a lock, and its holder is at work, or died a moment ago\n")
		if strings.Contains(r.stdout, "journal") {
			t.Error(r.stdout)
		}
		if r := inspect("redis://127.0.0.1:1", s.url); strings.Contains(r.stdout, "free") || r.code != failed {
			t.Errorf("without Redis: %+v", r)
		}
		inspect("none", s.url).want(usage, "-lock: a lock is in Redis, and -redis is none")
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
