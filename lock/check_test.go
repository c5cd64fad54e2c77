package lock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// wantFindings checks that err has exactly these of Check's findings, and nothing else.
func wantFindings(t *testing.T, err error, want ...error) {
	t.Helper()
	found := 0
	for _, finding := range []error{lock.ErrOldVersion, lock.ErrEviction, lock.ErrEvictionUnknown, lock.ErrNotReplicated} {
		wanted := slices.Contains(want, finding)
		if errors.Is(err, finding) != wanted {
			t.Errorf("Check: %v; is it %q? want %v", err, finding, wanted)
		}
		if wanted {
			found++
		}
	}
	if err == nil {
		return
	}
	if all, ok := err.(interface{ Unwrap() []error }); !ok || len(all.Unwrap()) != found {
		t.Errorf("Check: %v, want %d findings", err, found)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	master.Since(t, "6.2", "an ACL of channels")
	evicting := redistest.Start(t, "--maxmemory-policy", "volatile-lru")
	redistest.StartReplica(t, master)
	admin := master.Client(t)
	for _, user := range [][]any{
		{"mute", "-config", "-info"}, {"noconfig", "-config"}, {"noinfo", "-info"},
	} {
		args := append([]any{"ACL", "SETUSER", user[0], "on", "nopass", "~*", "&*", "+@all"}, user[1:]...)
		must(t, admin.Do(t.Context(), args...).Err())
	}
	as := func(user string) func(*redis.Options) {
		return func(o *redis.Options) { o.Username, o.Password = user, "any" }
	}
	for name, test := range map[string]struct {
		client *redis.Client
		opts   []lock.Option
		want   []error
	}{
		"fit":                    {client: master.Client(t)},
		"fit, with its replica":  {client: master.Client(t), opts: []lock.Option{acknowledged}},
		"without CONFIG":         {client: master.Client(t, as("noconfig"))},
		"without INFO":           {client: master.Client(t, as("noinfo")), want: []error{lock.ErrOldVersion}},
		"evicts":                 {client: evicting.Client(t), want: []error{lock.ErrEviction}},
		"without CONFIG or INFO": {client: master.Client(t, as("mute")), want: []error{lock.ErrOldVersion, lock.ErrEvictionUnknown}},
		"has too few replicas": {
			master.Client(t), []lock.Option{lock.WithReplicas(2, time.Second)}, []error{lock.ErrNotReplicated},
		},
		"has none, and evicts": {
			evicting.Client(t), []lock.Option{acknowledged}, []error{lock.ErrEviction, lock.ErrNotReplicated},
		},
		// It knows neither CONFIG nor the sections of INFO that matter.
		"miniredis": {
			client: redistest.Mini(t).Client(t), want: []error{lock.ErrOldVersion, lock.ErrEvictionUnknown},
		},
		"old": {
			client: redistest.NewClient(t, startInfo(t, "redis_version:5.0.14", "maxmemory_policy:noeviction")),
			want:   []error{lock.ErrOldVersion},
		},
		"as old as may be": {
			client: redistest.NewClient(t, startInfo(t, "redis_version:6.0.0", "maxmemory_policy:noeviction")),
		},
		"of two digits": {
			client: redistest.NewClient(t, startInfo(t, "redis_version:10.2.1", "maxmemory_policy:noeviction")),
		},
		"something else": {
			client: redistest.NewClient(t, startInfo(t, "redis_version:unstable", "maxmemory_policy:allkeys-lfu")),
			want:   []error{lock.ErrOldVersion, lock.ErrEviction},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := newLocker(t, test.client, test.opts...).Check(t.Context())
			wantFindings(t, err, test.want...)
		})
	}
}

// Check finds each command that an ACL forbids, also on a server that has all scripts in its cache: there EVALSHA works
// without EVAL, until the server restarts. The ACL is that of docs/operate.md.
func TestCheckFindsWhatAnACLForbids(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Since(t, "6.2", "an ACL of channels")
	admin := server.Client(t)
	allowed := strings.Fields("+set +get +getrange +setrange +exists +del +pttl +pexpire +time +eval +evalsha " +
		"+publish +subscribe +unsubscribe +ping +info")
	check := func(t *testing.T, forbidden string, opts ...lock.Option) error {
		args := []any{"ACL", "SETUSER", "app", "reset", "on", "nopass", "~test:*", "&test:*"}
		for _, command := range allowed {
			if command != "+"+forbidden {
				args = append(args, command)
			}
		}
		must(t, admin.Do(t.Context(), args...).Err())
		client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "any" })
		locker := newLocker(t, client, opts...)
		defer func() {
			if err := locker.Close(t.Context()); err != nil && !(forbidden != "nothing" && errors.Is(err, lock.ErrUnreleased)) {
				t.Errorf("Close: %v", err)
			}
		}()
		return locker.Check(t.Context())
	}
	for name, test := range map[string]struct {
		opts      []lock.Option
		forbidden string
	}{
		"plain":  {nil, "set get getrange exists pexpire pttl del eval evalsha"},
		"fenced": {[]lock.Option{lock.WithFencing()}, "set get getrange exists pexpire pttl del time eval evalsha"},
	} {
		if err := admin.FlushDB(t.Context()).Err(); err != nil { // what is left without DEL
			t.Fatal(err)
		}
		if err := check(t, "nothing", test.opts...); err != nil { // and now the server has the scripts
			t.Errorf("%s: Check: %v", name, err)
		}
		wantNoClaims(t, server)
		for _, forbidden := range strings.Fields(test.forbidden) {
			t.Run(name+" without "+forbidden, func(t *testing.T) {
				if err := check(t, forbidden, test.opts...); err == nil {
					t.Error("Check: nil")
				}
			})
		}
	}
}

// startInfo starts a server whose INFO consists of these lines.
func startInfo(t *testing.T, lines ...string) (addr string) {
	t.Helper()
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			peer.WriteBulk("# Server\r\n" + strings.Join(lines, "\r\n") + "\r\n")
		}
		return cmd == "INFO"
	})
	return m.Addr()
}

// A managed service may refuse scripts that declare no key.
//
// fault: a server that refuses scripts without keys
func TestCheckDeclaresKeys(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
		switch {
		case cmd == "INFO":
			peer.WriteBulk("redis_version:7.1.0\r\nmaxmemory_policy:noeviction\r\n")
			return true
		case strings.HasPrefix(cmd, "EVAL") && (len(args) < 3 || args[1] == "0" || !strings.HasPrefix(args[2], "test:")):
			peer.WriteError("ERR this script declares no key of the namespace")
			return true
		}
		return false
	})
	wantErr(t, "Check", newLocker(t, redistest.NewClient(t, m.Addr())).Check(t.Context()), nil)
}

// A server that does not answer, or not to this client, is an error but not a finding.
func TestCheckOfNobody(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 2)
	paused, guarded := servers[0], servers[1]
	paused.Pause(t)
	must(t, guarded.Client(t).ConfigSet(t.Context(), "requirepass", "right").Err())
	for name, client := range map[string]*redis.Client{
		"paused":         paused.Client(t, honorsDeadlines),
		"gone":           redistest.NewClient(t, "127.0.0.1:1"),
		"wrong password": guarded.Client(t, func(o *redis.Options) { o.Password = "wrong" }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := newLocker(t, client, lock.WithOpTimeout(200*time.Millisecond)).Check(t.Context())
			if err == nil {
				t.Fatal("Check: nil")
			}
			for _, finding := range []error{lock.ErrOldVersion, lock.ErrEviction, lock.ErrEvictionUnknown} {
				if errors.Is(err, finding) {
					t.Errorf("Check: %v, want no finding", err)
				}
			}
		})
	}
}
