package operate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	const (
		url     = " -redis redis://:secret@ADDR "
		change  = url + "-reason r " + someKey + " -token " + someToken + " "
		request = "inspect" + url + "-namespace a -key k "
	)
	for want, line := range map[string]string{
		"first argument is not a command": "-redis=redis://:secret@ADDR inspect",
		"onceguard inspect":               "",
		"-redis is missing":               "inspect " + someKey,
		"has no database driver":          "inspect -journal sqlite:secret " + someKey + url,
		"want one KEY, or":                "inspect" + url + someKey + " " + someKey,
		"no KEY begins with one":          "inspect 8e03978e" + url,
		"no braces":                       "inspect -namespace a{ k" + url,
		"only one of them":                "inspect -namespace a -lock l " + someKey + url,
		"one KEY, or -user":               "forget -reason r -list - " + someKey + url,
		"want either -user or -anonymous": request + "-path / -user a -anonymous",
		"begins with /, or -no-route":     request + "-user a",
		"give neither -method nor -path":  request + "-user a -no-route -method POST",
		"-key is missing":                 "inspect -namespace a -user a -path /" + url,
		"-timeout":                        "inspect -timeout 1ms " + someKey + url,
		"not defined: -lock":              "resolve -lock l",
		"-token is missing":               "forget -reason r " + someKey + url,
		"-reason is missing":              "forget -token t " + someKey + url,
		"give -nothing-happened or":       "resolve" + change,
		"-body-file: open":                "resolve -status 200 -body-file /nowhere" + change,
		"-keys-file":                      "resolve -status 200 -keys-file /nowhere" + change,
		"-retention":                      "resolve -status 200 -retention 0" + change,
		"want 'Name: value'":              "resolve -header a" + change,
		"such as 500-599":                 "scan -namespace a -status 99" + url,
		"-list: give neither":             "forget -reason r -list - -token t" + url,
		"-rate":                           "scan -namespace a -rate 0" + url,
		"no argument, got 1":              "scan -namespace a k" + url,
		"another namespace":               "inspect -namespace other " + someKey + url,
		"64 hexadecimal digits":           "inspect -namespace shop 8e03978e" + url,
		"fence counter":                   "inspect shop:{290c}fence" + url,
	} {
		r := onceguard(t, Environment{}, strings.ReplaceAll(line, "ADDR", mini.Addr())).want(exitUsage, want)
		r.hides("secret")
		if line != "" && strings.Count(r.stderr, want) != 1 {
			t.Errorf("it is said twice: %s", r.stderr)
		}
	}
	onceguard(t, Environment{}, "help").want(exitDone, "onceguard scan")
	onceguard(t, Environment{}, "forget -help").want(exitDone, "usage: onceguard forget -reason TEXT (-token TOKEN", "-even-if-live")
}

// fault: a variable of the operator's script is not set. Expected: the command names what is empty, and does not tell about
// another key.
func TestEmptyFlags(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"-user", "-host", "-method", "-path", "-key", "-lock", "-token", "-reason", "-redis", "-keys-file"} {
		onceguard(t, Environment{}, "forget -user ann -path /payments -key k1 -redis redis://127.0.0.1:1", name, "").want(exitUsage, name)
	}
	onceguard(t, Environment{}, "inspect -redis redis://127.0.0.1:1 -namespace shop", "").want(exitUsage, "KEY is empty")
}

// No part of a URL that is refused is printed: a password that is not in percent-encoding may be anywhere in it.
func TestWrongURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://:secret@host:port:port", "http://:secret@host", "secret:word@host", "redis:secret@host", ":secret@host",
		"redis://:secret@host/secret", "redis://:secret@host/1/secret", "redis://ops:12/secret@host:6379", "redis://ops:12#secret@host:6379",
		"redis://ops:12?secret@host:6379", "redis://:27?secret=@host:6379", "redis://:27/secret?word@host:6379",
		"redis://:27?db=secret@host:6379", "redis://:27?client_name=@secret:6379", "redis://ops:pass@word/12@secret:6379",
		"redis://host:6379?db=secret", "redis://host:6379?pool_fifo=secret", "redis://host:6379?secret=1", "redis://host:6379?addr=secret",
		"redis://host:6379?master_name=m&sentinel_password=a&secret=", "redis://host:6379?addr=host:1&read_timeout=secret",
	} {
		onceguard(t, Environment{}, "inspect -redis "+url+" "+someKey).want(exitUsage, "want redis://", "in percent-encoding").hides("secret")
	}
}

// Redis does not answer, or does not let us in. No password is printed, nor does -help print REDIS_URL.
func TestRedisFails(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client(t).ConfigSet(t.Context(), "requirepass", "right").Err(); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"redis://:secret@127.0.0.1:1":                  "connection refused",
		"redis://:secret@127.0.0.1:1?addr=127.0.0.1:1": "connection refused",
		"redis://:secret@127.0.0.1:1?master_name=m":    "sentinel",
		"redis://:secret@" + server.Addr():             "WRONGPASS",
		"redis://" + server.Addr():                     "NOAUTH",
	} {
		env := Environment{Getenv: func(name string) string { return map[string]string{"REDIS_URL": url}[name] }}
		onceguard(t, env, "inspect -timeout 30s "+someKey).want(exitFailed, want).hides("secret")
		onceguard(t, env, "scan -namespace shop -timeout 30s").want(exitFailed, want).hides("secret")
		onceguard(t, env, "inspect -help").want(exitDone).hides("secret")
	}
	onceguard(t, Environment{}, "inspect "+someKey+" -redis redis://:right@"+server.Addr()).want(exitFree)
}

// fault: Redis does not answer a command. Expected: it has the time of -timeout, which is longer than a service would wait.
func TestTimeout(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
	proxy.HoldRequest(func(c redistest.Command) bool { return strings.HasPrefix(c.Name, "EVAL") })
	start := time.Now()
	onceguard(t, Environment{}, "inspect -timeout 700ms -redis redis://"+proxy.Addr()+" "+someKey).want(exitFailed)
	if took := time.Since(start); took < 700*time.Millisecond {
		t.Errorf("it fails after %v", took)
	}
}

// What another program has written is left alone. A time that is damaged, beyond the years of JSON, does not end a scan or keep
// a key from being inspected.
func TestForeign(t *testing.T) {
	s := openMini(t)
	client := redistest.NewClient(t, strings.TrimPrefix(s.url, "redis://"))
	set := func(value string) {
		if err := client.Set(t.Context(), someKey, value, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	claim := "OGc\x01" + strings.Repeat("t", 16) + "\x00" + strings.Repeat("0", 16) + strings.Repeat("\x00", 8)
	for _, claimed := range []string{"\x7f\xff\xff\xff\xff\xff\xff\xff", "\x80\x00\x00\x00\x00\x00\x00\x00"} {
		set(claim + claimed)
		s.run("inspect -json "+someKey).want(exitDone, `"state":"held"`)
		s.run("scan -json -namespace shop").want(exitDone, `"state":"held"`)
	}
	set("not ours")
	change := " -reason r " + someKey + " -token " + someToken
	s.run("inspect "+someKey).want(exitRefused, "foreign")
	s.run("forget"+change).want(exitRefused, "foreign", "level=WARN", "msg=forget", "user=ops", "reason=r", "key="+someKey, "before=unknown")
	s.run("resolve -nothing-happened"+change).want(exitRefused, "foreign")
	s.run("scan -namespace shop").want(exitDone, "found 0 held and 0 abandoned keys, and 1 that another program wrote in Redis; a journal may have others\n")
	if got := client.Get(t.Context(), someKey).Val(); got != "not ours" {
		t.Errorf("it is now %q", got)
	}
}

// All commands, by one node's address and by those of all, on keys of every master.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	servers := cluster.Servers()
	one := "redis://" + servers[0].Addr()
	s := open(t, cluster.Client(t), one, func(d time.Duration) {
		for _, server := range servers {
			server.Elapse(t, d)
		}
	})
	owners := map[*redistest.Server]bool{}
	for i := 0; i < 4 || len(owners) < 3; i++ {
		key := s.strand(fmt.Sprint("k", i))
		owners[cluster.Owner(t, key)] = true
		s.url = one
		if i%2 == 1 {
			s.url += "?addr=" + servers[1].Addr() + "&addr=" + servers[2].Addr()
		}
		s.run("scan -namespace shop -rate 100000").want(exitDone, key, "found 0 held and 1 abandoned keys")
		s.change("resolve -status 202", key).want(exitDone, "resolved")
		s.change("forget", key).want(exitDone, "forgotten: it was settled")
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
	s.change("resolve -status 202", s.strand("k1")).want(exitDone, "resolved")
}

// The user of the URL is that of the server or, if there are Sentinels, theirs, as redis.ParseFailoverURL has it. fault: the URL
// has the numbers of a service, and with some of them go-redis panics, or sends nothing and returns no error. Expected: the
// command has its own.
func TestOptionsOfTheURL(t *testing.T) {
	t.Parallel()
	const user = "rediss://a:b@h:1/3?skip_verify=true&protocol=2&pool_size=-3&pool_timeout=-3&max_retries=0"
	const query = "&addr=i:2&username=c&password=d&max_redirects=-1&failing_timeout_seconds=0&dialer_retries=-3"
	one, err := redisOptions(user)
	two, errTwo := redisOptions(user + query + "&master_name=m")
	if err = errors.Join(err, errTwo); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(one.Addrs, one.Username, one.Password, one.DB, one.Protocol, one.TLSConfig.InsecureSkipVerify, one.PoolSize, one.MaxRetries, one.PoolTimeout,
		two.Addrs, two.Username, two.Password, two.SentinelUsername, two.SentinelPassword, two.DB, two.MasterName)
	if want := "[h:1] a b 3 2 true 0 0 0s [h:1 i:2] c d a b 3 m\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
