package system_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// A Redis user with exactly the rules of docs/operate.md is refused nothing, and uses every rule.
func TestOperationsACL(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "6.2", "an ACL of channels")
	acl := readACL(t)
	for name, c := range map[string]struct {
		more []string // rules
		opts []lock.Option
		then func(*testing.T, string, redis.UniversalClient)
	}{
		"one server": {},
		"replicas":   {more: acl.replicas, opts: []lock.Option{lock.WithReplicas(1, 5*time.Second)}},
		"operators":  {more: acl.operators, then: operate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			if len(c.opts) > 0 {
				redistest.StartReplica(t, server)
			}
			admins, rules := []*redis.Client{server.Client(t)}, slices.Concat(acl.rules, c.more)
			permit(t, admins, rules)
			client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = aclUser, aclUser })
			exercise(t, admins, acl.namespace, client, c.opts...)
			if c.then != nil {
				c.then(t, acl.namespace, client)
			}
			wantUse(t, admins, rules)
		})
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		redistest.Since(t, "7.0", "sharded pub/sub")
		cluster := redistest.StartCluster(t, 3, 0)
		var admins []*redis.Client
		for _, server := range cluster.Servers() {
			admins = append(admins, server.Client(t))
		}
		rules := slices.DeleteFunc(slices.Concat(acl.rules, acl.cluster), func(rule string) bool {
			return slices.Contains(acl.cluster, strings.Replace(rule, "+", "+s", 1)) // the sharded form replaces it
		})
		client := cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = aclUser, aclUser })
		moving := lock.New(client, acl.namespace).StorageKey(plainLock) // its slot is between two masters
		to := slices.IndexFunc(cluster.Servers(), func(s *redistest.Server) bool { return s != cluster.Owner(t, moving) })
		cluster.BeginMove(t, moving, cluster.Servers()[to])
		permit(t, admins, rules)
		exercise(t, admins, acl.namespace, client)
		wantUse(t, admins, rules)
	})
}

// accessRules is what docs/operate.md says that an ACL must allow.
type accessRules struct {
	namespace                    string
	rules                        []string // in all cases
	cluster, replicas, operators []string // besides
}

func readACL(t *testing.T) accessRules {
	t.Helper()
	text := readPage(t, "README.md") + readPage(t, "docs/operate.md")
	find := func(pattern string) string {
		matches := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
		if len(matches) != 1 {
			t.Fatalf("README and operations have %d matches of %s, want one", len(matches), pattern)
		}
		return matches[0][1]
	}
	acl := accessRules{
		namespace: find(`lock\.New\(client, "([^"]+)"\) // one namespace per service`),
		rules:     strings.Fields(find(`An ACL must allow\n\n((?:    .*\n)+)`)),
		cluster:   strings.Fields(find("A Cluster needs `([^`]+)`")),
		replicas:  strings.Fields(find("`lock.WithReplicas` needs `([^`]+)`")),
		operators: strings.Fields(find("`Locker.Scan` needs `([^`]+)`")),
	}
	if want := []string{"~" + acl.namespace + ":*", "&" + acl.namespace + ":*"}; !slices.Equal(acl.rules[:2], want) {
		t.Errorf("operate.md allows the keys and channels %q, want %q", acl.rules[:2], want)
	}
	return acl
}

// aclUser is the name and the password of the user whom the ACL is for.
const aclUser = "app"

// permit makes the user on every server, and forgets what was called there before.
func permit(t *testing.T, admins []*redis.Client, rules []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", aclUser, "reset", "on", ">" + aclUser}
	for _, rule := range rules {
		args = append(args, rule)
	}
	for _, admin := range admins {
		if err := errors.Join(admin.Do(t.Context(), args...).Err(), admin.ConfigResetStat(t.Context()).Err()); err != nil {
			t.Fatal(err)
		}
	}
}

// wantUse checks that the servers were asked for exactly the commands that the rules allow, and refused no command, key or
// channel.
func wantUse(t *testing.T, admins []*redis.Client, rules []string) {
	t.Helper()
	called := map[string]bool{}
	for _, admin := range admins {
		stats, err := admin.Info(t.Context(), "commandstats").Result() // counts the commands of scripts too
		log, logErr := admin.ACLLog(t.Context(), 1000).Result()
		if err := errors.Join(err, logErr); err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=[1-9]`).FindAllStringSubmatch(stats, -1) {
			called["+"+m[1]] = true
		}
		for _, entry := range log {
			if !strings.HasPrefix(entry.Object, "client") { // go-redis says who it is, and does without
				t.Errorf("refused: %s %s, %s", entry.Reason, entry.Object, entry.Context)
			}
		}
	}
	for rule := range called {
		command, _, _ := strings.Cut(rule, "|")
		free := slices.Contains([]string{"+hello", "+auth", "+config", "+replconf"}, command) // need no rule, or are not ours
		if !free && !slices.Contains(rules, rule) {
			t.Errorf("%s is called, and not in operate.md", rule)
		}
	}
	for _, rule := range rules {
		if strings.HasPrefix(rule, "+") && !called[rule] {
			t.Errorf("%s is in operate.md, and never called", rule)
		}
	}
}

const plainLock = "plain-lock"

// exercise does with Redis whatever the library does.
func exercise(t *testing.T, admins []*redis.Client, namespace string, client redis.UniversalClient, opts ...lock.Option) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	opts = append([]lock.Option{lock.WithTTL(6 * time.Second), lock.WithOpTimeout(patience)}, opts...)
	plain := lock.New(client, namespace, opts...)
	fenced := lock.New(client, namespace, append(opts, lock.WithFencing())...)
	var users sync.WaitGroup
	users.Go(func() { exerciseRuns(ctx, t, admins, once.New(plain, once.WithWait(patience)), "plain") })
	users.Go(func() {
		exerciseRuns(ctx, t, admins, once.New(plain, once.WithWait(patience), once.WithAtMostOnce()), "plain-once")
	})
	users.Go(func() {
		exerciseRuns(ctx, t, admins, once.New(fenced, once.WithWait(patience), once.WithAtMostOnce()), "fenced-once")
	})
	users.Go(func() { exerciseLock(ctx, t, plain, plainLock) })
	users.Go(func() { exerciseLock(ctx, t, fenced, "fenced-lock") })
	users.Wait()
	for _, locker := range []*lock.Locker{plain, fenced} {
		if err := errors.Join(locker.Check(ctx), locker.Close(ctx)); err != nil {
			t.Error(err)
		}
	}
}

// exerciseRuns has runs of every outcome: executed, replayed, reused, freed, unknown, and waited for.
func exerciseRuns(ctx context.Context, t *testing.T, admins []*redis.Client, guard *once.Guard, id string) {
	t.Helper()
	do := func(operation string, input int, run func() error) error {
		key := once.Key{Operation: operation, Scope: once.Anyone, ID: id, Input: input}
		_, _, err := once.Do(ctx, guard, key, func(context.Context) (string, error) { return "paid", run() })
		return err
	}
	pays := func() error { return nil }
	failed := errors.New("failed")
	err := errors.Join(do("pay", 1, pays), do("pay", 1, pays))
	if reused := do("pay", 2, pays); err != nil || reused == nil {
		t.Errorf("%s: a run and its replay: %v; another input: %v", id, err, reused)
	}
	freed := do("free", 1, func() error { return once.NothingHappened(failed) })
	unknown := do("unknown", 1, func() error { return once.Unknown(failed) })
	if !errors.Is(freed, failed) || !errors.Is(unknown, failed) {
		t.Errorf("%s: runs that fail: %v, %v", id, freed, unknown)
	}

	entered, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	slow := func() { ended <- do("slow", 1, func() error { close(entered); <-release; return nil }) }
	go slow()
	select {
	case <-entered:
	case err := <-ended:
		t.Errorf("%s: it did not run: %v", id, err)
		return
	}
	go slow()
	awaitPing(t, admins)
	close(release)
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Errorf("%s, a run and its waiter: %v", id, err)
	}
}

// awaitPing waits until a subscription has stayed without a message for so long that it asks whether its server is still
// there. A lease of 6 s is renewed earlier.
func awaitPing(t *testing.T, admins []*redis.Client) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, admin := range admins {
			stats, err := admin.Info(t.Context(), "commandstats").Result()
			if err != nil || strings.Contains(stats, "cmdstat_ping:calls=") {
				return
			}
		}
	}
	t.Error("no subscription has sent a PING")
}

// exerciseLock takes a key that an operator frees.
func exerciseLock(ctx context.Context, t *testing.T, locker *lock.Locker, key string) {
	t.Helper()
	lease, err := locker.Acquire(ctx, key)
	if err != nil {
		t.Error(err)
		return
	}
	if err := errors.Join(locker.Forget(ctx, locker.StorageKey(key), lease.Token(), true), lease.Release(ctx)); err != nil {
		t.Error(err)
	}
}

// operate finds the key of a run, as an operator does, and looks at it.
func operate(t *testing.T, namespace string, client redis.UniversalClient) {
	t.Helper()
	locker := lock.New(client, namespace, lock.WithOpTimeout(patience))
	defer func() { _ = locker.Close(context.Background()) }()
	found := 0
	for step, err := range locker.Scan(t.Context(), 100) {
		for _, info := range step.Infos {
			found++
			_, inspected := locker.Inspect(t.Context(), info.Key)
			err = errors.Join(err, inspected)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if found == 0 {
		t.Error("Scan finds no key")
	}
}
