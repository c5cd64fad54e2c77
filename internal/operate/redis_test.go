package operate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	url := "redis://:secret@" + mini.Addr()
	key := "shop:{290c}a43065beb94174f18c2774127949e802b5db609eaa504db86bcae1f38564c511"
	const token = "01234567-89ab-4def-8123-456789abcdef"
	for want, args := range map[string][]string{
		"first argument is not a command": {"-redis=" + url, "inspect", key},
		"onceguard inspect":               {},
		"-redis is missing":               {"inspect", key},
		"has no database driver":          {"inspect", "-redis", url, "-journal", "sqlite:secret", key},
		"KEY is missing":                  {"inspect", "-redis", url},
		"one KEY, got 2":                  {"inspect", "-redis", url, key, key},
		"KEY does not begin with one":     {"inspect", "-redis", url, key[len("shop:{290c}"):]},
		"no braces":                       {"inspect", "-redis", url, "-namespace", "a{", key},
		"but only one of them":            {"inspect", "-redis", url, "-path", "/", key},
		"-namespace is missing":           {"inspect", "-redis", url, "-user", "a", "-path", "/", "-key", "k"},
		"either -user or":                 {"inspect", "-redis", url, "-namespace", "a", "-path", "/", "-key", "k"},
		"begins with /":                   {"inspect", "-redis", url, "-namespace", "a", "-user", "a", "-path", "a", "-key", "k"},
		"-key is missing":                 {"inspect", "-redis", url, "-namespace", "a", "-user", "a", "-path", "/"},
		"-timeout":                        {"inspect", "-redis", url, "-timeout", "1ms", key},
		"not defined: -foo":               {"inspect", "-foo", key},
		"-token is missing":               {"forget", "-redis", url, "-reason", "r", key},
		"-reason is missing":              {"forget", "-redis", url, "-token", token, "-reason", " ", key},
		"-replicas":                       {"forget", "-redis", url, "-token", token, "-reason", "r", "-replicas", "-1", key},
		"give -nothing-happened or":       {"resolve", "-redis", url, "-token", token, "-reason", "r", key},
		"give one of":                     {"resolve", "-redis", url, "-token", token, "-reason", "r", "-nothing-happened", "-status", "200", key},
		"-body-file: open":                {"resolve", "-redis", url, "-token", token, "-reason", "r", "-status", "200", "-body-file", "/nowhere", key},
		"-keys-file":                      {"resolve", "-redis", url, "-token", token, "-reason", "r", "-status", "200", "-keys-file", "/nowhere", key},
		"-plaintext-reads":                {"resolve", "-redis", url, "-token", token, "-reason", "r", "-status", "200", "-plaintext-reads", key},
		"-retention":                      {"resolve", "-redis", url, "-token", token, "-reason", "r", "-status", "200", "-retention", "0", key},
		"-max-response":                   {"resolve", "-redis", url, "-token", token, "-reason", "r", "-status", "200", "-max-response", "-1", key},
		"-compression":                    {"resolve", "-redis", url, "-token", token, "-reason", "r", "-status", "200", "-compression", "-2", key},
		"want 'Name: value'":              {"resolve", "-header", "a", key},
		"-status":                         {"scan", "-redis", url, "-namespace", "a", "-status", "599-500"},
		"-list: give neither":             {"forget", "-redis", url, "-reason", "r", "-list", "-", "-token", token},
		"KEY or -list":                    {"forget", "-redis", url, "-reason", "r", "-list", "-", key},
		"-rate":                           {"scan", "-redis", url, "-namespace", "a", "-rate", "0"},
		"no argument, got 1":              {"scan", "-redis", url, "-namespace", "a", key},
		"not from 0 to":                   {"resolve", "-redis", url, "-token", token, "-reason", "r", "-status", "200", "-max-response", "9223372036854775807", key},
	} {
		r := onceguard(t, args...)
		r.want(t, exitUsage, want)
		if len(args) > 0 && strings.Count(r.stderr, want) != 1 {
			t.Errorf("it is said twice: %s", r.stderr)
		}
		if strings.Contains(r.stdout+r.stderr, "secret") {
			t.Errorf("the password is printed: %s%s", r.stdout, r.stderr)
		}
	}
	onceguard(t, "inspect", "-redis", "redis://"+mini.Addr(), "-namespace", "other", key).want(t, exitUsage, "another namespace")
	onceguard(t, "inspect", "-redis", "redis://"+mini.Addr(), "-namespace", "shop", "8e03978e").want(t, exitUsage, "64 hexadecimal digits")
	onceguard(t, "inspect", "-redis", "redis://"+mini.Addr(), "shop:{290c}fence").want(t, exitUsage, "fence counter")
	onceguard(t, "help").want(t, exitDone, "onceguard scan")
	onceguard(t, "forget", "-help").want(t, exitDone, "usage: onceguard forget -reason TEXT (-token TOKEN", "-even-if-live")
}

// No part of a URL that is refused is printed: a password that is not in percent-encoding may be anywhere in it.
func TestWrongURL(t *testing.T) {
	t.Parallel()
	key := "shop:{290c}a43065beb94174f18c2774127949e802b5db609eaa504db86bcae1f38564c511"
	for _, url := range []string{
		"redis://:secret@host:port:port",
		"http://:secret@host",
		"secret:word@host",
		"redis:secret@host",
		":secret@host",
		"redis://:secret@host/secret",
		"redis://:secret@host/1/secret",
		"redis://ops:12/secret@host:6379",
		"redis://ops:12#secret@host:6379",
		"redis://ops:12?secret@host:6379",
		"redis://:27?secret=@host:6379",
		"redis://:27/secret?word@host:6379",
		"redis://:27?db=secret@host:6379",
		"redis://:27?client_name=@secret:6379",
		"redis://ops:pass@word/12@secret:6379",
		"redis://host:6379?db=secret",
		"redis://host:6379?pool_fifo=secret",
		"redis://host:6379?secret=1",
		"redis://host:6379?addr=secret",
		"redis://host:6379?master_name=m&sentinel_password=a&secret=",
		"redis://host:6379?addr=host:1&read_timeout=secret",
	} {
		r := onceguard(t, "inspect", "-redis", url, key)
		r.want(t, exitUsage, "want redis://", "in percent-encoding")
		if strings.Contains(r.stdout+r.stderr, "secret") {
			t.Errorf("%s: a part of it is printed: %s%s", url, r.stdout, r.stderr)
		}
	}
}

// Redis does not answer, or does not let us in. No password is printed, nor does -help print REDIS_URL.
func TestRedisFails(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client(t).ConfigSet(t.Context(), "requirepass", "right").Err(); err != nil {
		t.Fatal(err)
	}
	key := "shop:{290c}a43065beb94174f18c2774127949e802b5db609eaa504db86bcae1f38564c511"
	for url, want := range map[string]string{
		"redis://:secret@127.0.0.1:1":                  "connection refused",
		"redis://:secret@127.0.0.1:1?addr=127.0.0.1:1": "connection refused",
		"redis://:secret@127.0.0.1:1?master_name=m":    "sentinel",
		"redis://:secret@" + server.Addr():             "WRONGPASS",
		"redis://" + server.Addr():                     "NOAUTH",
		"redis://nobody:secret@" + server.Addr():       "WRONGPASS",
	} {
		for _, args := range [][]string{{"inspect", key}, {"scan", "-namespace", "shop"}} {
			env := Environment{Getenv: func(name string) string {
				if name == "REDIS_URL" {
					return url
				}
				return ""
			}}
			r := onceguardWith(t, env, append(args, "-timeout", "2s")...)
			r.want(t, exitFailed, want)
			help := onceguardWith(t, env, args[0], "-help")
			if strings.Contains(r.stdout+r.stderr+help.stdout+help.stderr, "secret") {
				t.Errorf("the password is printed: %+v %+v", r, help)
			}
		}
	}
	onceguard(t, "inspect", "-redis", "redis://:right@"+server.Addr(), key).want(t, exitFree)
}

// What another program has written is left alone.
func TestForeign(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		token := s.token(key)
		client := redistest.NewClient(t, strings.TrimPrefix(s.url, "redis://"))
		if err := client.Set(t.Context(), key, "not ours", 0).Err(); err != nil {
			t.Fatal(err)
		}
		s.run("inspect", key).want(t, exitRefused, "foreign")
		s.run("forget", "-token", token, "-reason", "r", key).want(t, exitRefused, "foreign",
			"level=WARN", "msg=forget", "user=ops", "reason=r", "key="+key, "token="+token, "before=unknown")
		s.run("resolve", "-token", token, "-reason", "r", "-nothing-happened", key).want(t, exitRefused, "foreign")
		s.run("scan", "-namespace", "shop").want(t, exitDone, "found 0 held and 0 abandoned keys, and 1 that another program wrote in Redis; a journal may have others\n")
		if got := client.Get(t.Context(), key).Val(); got != "not ours" {
			t.Errorf("it is now %q", got)
		}
	})
}

// All commands, by one node's address and by those of all, on keys of every master.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	one := "redis://" + cluster.Servers()[0].Addr()
	all := one + "?addr=" + cluster.Servers()[1].Addr() + "&addr=" + cluster.Servers()[2].Addr()
	s := open(t, cluster.Client(t), one, func(d time.Duration) {
		for _, server := range cluster.Servers() {
			server.Elapse(t, d)
		}
	})
	owners := map[*redistest.Server]bool{}
	var names, keys []string
	for i := 0; len(keys) < 8 || len(owners) < 3; i++ {
		names = append(names, fmt.Sprint("k", i))
		keys = append(keys, s.strand(names[i]))
		owners[cluster.Owner(t, keys[i])] = true
	}
	s.run("scan", "-namespace", "shop", "-rate", "100000").want(t, exitDone, fmt.Sprintf("found 0 held and %d abandoned keys", len(keys)))
	for i, key := range keys {
		if i%2 == 1 {
			s.url = all
		}
		s.run("inspect", key).want(t, exitDone, "abandoned")
		if i%4 < 2 {
			s.run("forget", "-token", s.token(key), "-reason", "r", key).want(t, exitDone, "forgotten")
		} else {
			s.run("resolve", "-token", s.token(key), "-reason", "r", "-status", "202", key).want(t, exitDone, "resolved")
		}
		want := map[bool]int{true: http.StatusCreated, false: http.StatusAccepted}[i%4 < 2]
		if w := s.post(names[i]); w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	group := redistest.StartSentinel(t, 1)
	var url string
	client := group.Client(t, func(o *redis.FailoverOptions) {
		url = "redis://" + o.SentinelAddrs[0] + "?master_name=" + o.MasterName
	})
	s := open(t, client, url, func(d time.Duration) { group.Master(t).Elapse(t, d) })
	key := s.strand("k1")
	s.run("resolve", "-token", s.token(key), "-reason", "r", "-status", "202", "-replicas", "1", key).want(t, exitDone, "resolved")
	s.run("resolve", "-token", s.token(key), "-reason", "r", "-status", "202", "-replicas", "2", key).
		want(t, exitRefused)
	s.run("forget", "-token", s.token(key), "-reason", "r", "-replicas", "2", "-timeout", "6s", key).
		want(t, exitFailed, "not replicated: 1 of 2 have it")
}

// fault: a variable of the operator's script is not set. Expected: the command names what is empty, and does not tell about
// another key.
func TestEmptyPartsOfTheKey(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	for _, command := range []string{"inspect", "forget", "resolve"} {
		given := []string{command, "-redis", "redis://" + mini.Addr(), "-namespace", "shop"}
		if command != "inspect" {
			given = append(given, "-token", "01234567-89ab-4def-8123-456789abcdef", "-reason", "r")
		}
		if command == "resolve" {
			given = append(given, "-nothing-happened")
		}
		request := slices.Concat(given, []string{"-user", "ann", "-path", "/payments", "-key", "k1"})
		onceguard(t, append(request, "-host", "shop.example.com", "-method", "put")...).want(t, exitFree)
		for _, flag := range []string{"-user", "-host", "-method", "-path", "-key"} {
			onceguard(t, append(request, flag, "")...).want(t, exitUsage, flag)
		}
		onceguard(t, append(given, "")...).want(t, exitUsage, "KEY is empty")
		if command != "resolve" {
			onceguard(t, append(request, "-lock", "")...).want(t, exitUsage, "-lock")
		}
	}
}
