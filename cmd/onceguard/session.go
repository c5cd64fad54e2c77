package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
)

// config has the values of the command line.
type config struct {
	redis     string
	namespace string
	json      bool
	timeout   time.Duration
	replicas  int
	request   requestFlags
	change    changeFlags
	resolve   resolveConfig
	rate      int
}

// requestFlags are what the customer sent. They are given instead of KEY.
type requestFlags struct {
	user, method, path, key string
	anonymous               bool
}

func (c *config) commonFlags(set *flag.FlagSet, takesKey bool) {
	set.StringVar(&c.redis, "redis", "", "`URL` of Redis (default: REDIS_URL from the environment)")
	set.StringVar(&c.namespace, "namespace", "", "the `name` that lock.New got; a whole KEY has it in front")
	set.BoolVar(&c.json, "json", false, "print JSON")
	set.DurationVar(&c.timeout, "timeout", 5*time.Second, "time for one operation on Redis")
	if !takesKey {
		return
	}
	r := &c.request
	set.StringVar(&r.user, "user", "", "the user's `id`, in place of KEY")
	set.BoolVar(&r.anonymous, "anonymous", false, "the user is keyfunc.Anonymous")
	set.StringVar(&r.method, "method", http.MethodPost, "the request's `method`")
	set.StringVar(&r.path, "path", "", "the request's `path`, as the client sent it")
	set.StringVar(&r.key, "key", "", "the `content` of the Idempotency-Key header, without quotes")
}

// session is one command with its connection to Redis.
type session struct {
	environment
	*config
	log    *slog.Logger
	client redis.UniversalClient
	locker *lock.Locker
	key    string // empty for scan
}

func newSession(ctx context.Context, env environment, cfg *config, takesKey bool, args []string) (*session, error) {
	if cfg.redis == "" { // not as the flag's default, which -help would print with the password
		cfg.redis = env.getenv("REDIS_URL")
	}
	s := &session{environment: env, config: cfg, log: slog.New(slog.NewTextHandler(env.stderr, nil))}
	if err := s.findKey(takesKey, args); err != nil {
		return nil, err
	}
	switch {
	case cfg.redis == "":
		return nil, usagef("-redis is missing, and REDIS_URL is not set")
	case cfg.namespace == "" && takesKey:
		return nil, usagef("-namespace is missing: the KEY has none in front")
	case cfg.namespace == "":
		return nil, usagef("-namespace is missing")
	case strings.ContainsAny(cfg.namespace, "{}"):
		return nil, usagef("-namespace: a namespace has no braces")
	case cfg.timeout < 10*time.Millisecond || cfg.timeout > time.Hour:
		return nil, usagef("-timeout: %v is not between 10ms and 1h", cfg.timeout)
	case cfg.replicas < 0:
		return nil, usagef("-replicas: %d is negative", cfg.replicas)
	}
	client, err := openRedis(ctx, cfg.redis, cfg.timeout)
	if err != nil {
		return nil, err
	}
	opts := []lock.Option{lock.WithOpTimeout(cfg.timeout)}
	if cfg.replicas > 0 {
		opts = append(opts, lock.WithReplicas(cfg.replicas, cfg.timeout/2))
	}
	s.client, s.locker = client, lock.New(client, cfg.namespace, opts...)
	return s, nil
}

// findKey sets the session's key, and the namespace if the key has one in front.
func (s *session) findKey(takesKey bool, args []string) error {
	r := &s.request
	described := r.user != "" || r.anonymous || r.path != "" || r.key != ""
	switch {
	case !takesKey && len(args) > 0:
		return usagef("there is an argument too many: %d", len(args))
	case !takesKey:
		return nil
	case described && len(args) > 0:
		return usagef("give KEY, or -user, -method, -path and -key, but not both")
	case described:
		return r.check(s.namespace)
	case len(args) == 0:
		return usagef("KEY is missing")
	case len(args) > 1:
		return usagef("want one KEY, got %d", len(args))
	}
	s.key = args[0]
	if namespace, _, ok := strings.Cut(s.key, ":{"); ok && s.namespace == "" {
		s.namespace = namespace
	}
	return nil
}

// check returns an error if a flag of the request is missing.
func (r *requestFlags) check(namespace string) error {
	switch {
	case namespace == "":
		return usagef("-namespace is missing")
	case (r.user == "") != r.anonymous:
		return usagef("want either -user or -anonymous")
	case r.method == "":
		return usagef("-method is missing")
	case r.path == "" || r.path[0] != '/':
		return usagef("-path: want a path that begins with /")
	case r.key == "":
		return usagef("-key is missing")
	}
	return nil
}

// storageKey returns the command's key, in a form that the locker accepts.
func (s *session) storageKey() (string, error) {
	if s.key != "" {
		return s.key, nil
	}
	user := s.request.user
	if s.request.anonymous {
		var err error
		if user, err = keyfunc.Anonymous()(nil); err != nil {
			return "", err
		}
	}
	r := s.request
	return s.locker.StorageKey(keyfunc.StandardKey(user, strings.ToUpper(r.method), r.path, r.key)), nil
}

// String returns what a key is made of, as [keyfunc.StandardKey] takes it. It leaves out the content of the
// Idempotency-Key header: with keyfunc.Anonymous, any client that sends it gets the stored response.
func (r requestFlags) String() string {
	user := fmt.Sprintf("user %q", r.user)
	if r.anonymous {
		user = "no user (-anonymous)"
	}
	path, _, _ := strings.Cut(r.path, "?")
	return fmt.Sprintf("%s, method %q, path %q", user, strings.ToUpper(r.method), path)
}

// look returns what the key holds. If it holds nothing, look also returns errFree. With any other error only the Info's
// Key is set.
func (s *session) look(ctx context.Context) (lock.Info, error) {
	key, err := s.storageKey()
	if err != nil {
		return lock.Info{}, err
	}
	info, err := s.locker.Inspect(ctx, key)
	switch {
	case err != nil:
		info.Key = key
	case info.State == lock.Free:
		err = errFree
	}
	return info, err
}

func (s *session) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	return errors.Join(s.locker.Close(ctx), s.client.Close())
}
