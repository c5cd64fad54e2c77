package operate

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
	"github.com/onceguard/onceguard/middleware"
)

// config has the values of the command line.
type config struct {
	redis     string
	journal   string
	namespace string
	lock      string // its name, given instead of KEY
	json      bool
	timeout   time.Duration
	replicas  int
	request   requestFlags
	reading   readingFlags
	change    changeFlags
	resolve   resolveConfig
	rate      int
	options   []middleware.Option // that decide how a response is stored
}

// requestFlags are what the customer sent. They are given instead of KEY.
type requestFlags struct {
	user                    parts // one part, or those of a scope in the order of keyfunc.Compose
	method, path, key, host string
	anonymous               bool
}

func (c *config) commonFlags(set *flag.FlagSet, takesKey bool) {
	set.StringVar(&c.redis, "redis", "", "`URL` of Redis, or none (default: REDIS_URL from the environment)")
	set.StringVar(&c.journal, "journal", "", "`URL` of the journal's database (default: JOURNAL_URL from the environment)")
	set.StringVar(&c.namespace, "namespace", "", "the `name` given to lock.New; a whole KEY begins with it")
	set.BoolVar(&c.json, "json", false, "print JSON")
	set.DurationVar(&c.timeout, "timeout", 5*time.Second, "time for one operation of Redis or the journal")
	if !takesKey {
		return
	}
	set.StringVar(&c.reading.keysFile, "keys-file", "", "the `file` with the keys of middleware.WithEncryption")
	set.BoolVar(&c.reading.plaintext, "plaintext-reads", false, "as middleware.WithPlaintextReads")
	r := &c.request
	set.Var(&r.user, "user", "the user's `id`, in place of KEY; once for each part of a scope that keyfunc.Compose joins, such as tenant and user")
	set.StringVar(&r.host, "host", "", "the `host` that the client asked for, if keyfunc.Host is a part of the key")
	set.BoolVar(&r.anonymous, "anonymous", false, "the user is keyfunc.Anonymous")
	set.StringVar(&r.method, "method", http.MethodPost, "the request's `method`")
	set.StringVar(&r.path, "path", "", "the request's `path`, as the client sent it")
	set.StringVar(&r.key, "key", "", "the `content` of the Idempotency-Key header, without quotes; for keyfunc.Opaque, as in package profile, as the client sent it")
}

// session is one command with its connections to Redis and to the journal's database.
type session struct {
	Environment
	*config
	log     *slog.Logger
	client  redis.UniversalClient // nil without Redis
	locker  *lock.Locker
	noRedis error                  // why Redis could not be asked; nil if it was, or with -redis none
	journal Journal                // nil without a database driver
	once    *middleware.Middleware // serves no request
	opts    []middleware.Option    // of once
	key     string                 // empty for scan
}

// none stands for the URL of Redis, if the service has none.
const none = "none"

func newSession(ctx context.Context, env Environment, cfg *config, takesKey bool, args []string) (*session, error) {
	// Not as the flags' defaults, which -help would print with their passwords.
	if cfg.redis == "" {
		cfg.redis = env.Getenv("REDIS_URL")
	}
	if cfg.journal == "" {
		cfg.journal = env.Getenv("JOURNAL_URL")
	}
	s := &session{Environment: env, config: cfg, log: slog.New(slog.NewTextHandler(env.Stderr, nil))}
	if err := s.findKey(takesKey, args); err != nil {
		return nil, err
	}
	switch {
	case cfg.redis == "":
		return nil, usagef("-redis is missing, and REDIS_URL is not set")
	case cfg.redis == none && env.OpenJournal == nil:
		return nil, usagef("-redis %s is for a service with a journal, and this command has no database driver: install %s", none, withDrivers)
	case cfg.journal == "" && env.OpenJournal != nil:
		return nil, usagef("-journal is missing, and JOURNAL_URL is not set")
	case cfg.journal != "" && env.OpenJournal == nil:
		return nil, usagef("there is a journal (-journal or JOURNAL_URL), and this command has no database driver: install %s", withDrivers)
	case cfg.namespace == "" && takesKey:
		return nil, usagef("-namespace is missing, and KEY does not begin with one")
	case cfg.namespace == "":
		return nil, usagef("-namespace is missing")
	case strings.ContainsAny(cfg.namespace, "{}"):
		return nil, usagef("-namespace: a namespace has no braces")
	case cfg.timeout < 10*time.Millisecond || cfg.timeout > time.Hour:
		return nil, usagef("-timeout: %v is not between 10ms and 1h", cfg.timeout)
	case cfg.replicas < 0:
		return nil, usagef("-replicas: %d is negative", cfg.replicas)
	}
	reading, err := cfg.reading.options()
	if err != nil {
		return nil, err
	}
	s.opts = append(cfg.options, reading...)
	return s, s.connect(ctx)
}

// withDrivers is the path of the command that reads a journal.
const withDrivers = "github.com/onceguard/onceguard/sqljournal/cmd/onceguard"

// connect opens what the session needs, or nothing if it fails.
func (s *session) connect(ctx context.Context) (err error) {
	if s.OpenJournal != nil {
		if s.journal, err = s.OpenJournal(ctx, s.config.journal, s.namespace); err != nil {
			return err
		}
		s.opts = append(s.opts, middleware.WithJournal(s.journal))
	}
	if s.redis == none {
		s.use(lock.None(s.namespace))
		return nil
	}
	s.client, err = openRedis(ctx, s.redis, s.timeout)
	switch {
	case err == nil:
	case s.journal == nil:
		return err
	case isUsage(err):
		return errors.Join(err, s.journal.Close())
	default:
		s.leaveRedis(ctx, err)
		return nil
	}
	lockOpts := []lock.Option{lock.WithOpTimeout(s.timeout)}
	if s.replicas > 0 {
		lockOpts = append(lockOpts, lock.WithReplicas(s.replicas, s.timeout/2))
	}
	s.use(lock.New(s.client, s.namespace, lockOpts...))
	return nil
}

func (s *session) use(locker *lock.Locker) {
	s.locker, s.once = locker, middleware.New(locker, keyfunc.Anonymous(), s.opts...)
}

// leaveRedis makes the session go on with the journal alone, because Redis has failed with err.
func (s *session) leaveRedis(ctx context.Context, err error) {
	s.noRedis = err
	if s.locker != nil {
		_ = s.locker.Close(ctx) // it has nothing pending
	}
	s.use(lock.None(s.namespace))
}

// findKey sets the session's key, and the namespace if the key has one in front.
func (s *session) findKey(takesKey bool, args []string) error {
	r := &s.request
	described := len(r.user) > 0 || r.anonymous || r.host != "" || r.path != "" || r.key != ""
	switch {
	case !takesKey && len(args) > 0:
		return usagef("want no argument, got %d", len(args))
	case !takesKey:
		return nil
	case described && len(args) > 0, s.lock != "" && (described || len(args) > 0):
		return usagef("give KEY, or -user, -method, -path and -key, or -lock, but only one of them")
	case described:
		return r.check(s.namespace)
	case s.lock != "" && s.namespace == "":
		return usagef("-namespace is missing")
	case s.lock != "":
		return nil
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
	case (len(r.user) == 0) != r.anonymous:
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
	switch {
	case s.key != "":
		return s.key, nil
	case s.lock != "":
		return s.locker.StorageKey(s.lock), nil
	}
	key, err := s.request.derive()
	return s.locker.StorageKey(key), err
}

// derive returns the key of a request: of keyfunc.Standard or, with a host, of Compose(Standard(user), Host()).
func (r *requestFlags) derive() (string, error) {
	var user string
	var err error
	switch {
	case r.anonymous:
		user, err = keyfunc.Anonymous()(nil)
	case len(r.user) == 1:
		user = r.user[0]
	default:
		user = keyfunc.ComposedKey(r.user...)
	}
	key := keyfunc.StandardKey(user, strings.ToUpper(r.method), r.path, r.key)
	if r.host != "" {
		key = keyfunc.ComposedKey(key, strings.ToLower(r.host))
	}
	return key, err
}

// parts is a flag that may be given several times.
type parts []string

func (p *parts) String() string { return strings.Join(*p, " ") }

func (p *parts) Set(part string) error {
	if part == "" {
		return errors.New("want one that is not empty")
	}
	*p = append(*p, part)
	return nil
}

// madeOf returns what the key was made of.
func (s *session) madeOf() string {
	if s.lock != "" {
		return fmt.Sprintf("namespace %q and lock %q", s.namespace, s.lock)
	}
	return fmt.Sprintf("namespace %q, %s, and -key", s.namespace, s.request)
}

// String returns what a key is made of, as [keyfunc.StandardKey] takes it. It leaves out the content of the
// Idempotency-Key header: with keyfunc.Anonymous, any client that sends it gets the stored response.
func (r requestFlags) String() string {
	user := "no user (-anonymous)"
	for i, part := range r.user {
		if i == 0 {
			user = "user"
		}
		user += fmt.Sprintf(" %q", part)
	}
	path, _, _ := strings.Cut(r.path, "?")
	text := fmt.Sprintf("%s, method %q, path %q", user, strings.ToUpper(r.method), path)
	if r.host != "" {
		text += fmt.Sprintf(", host %q", strings.ToLower(r.host))
	}
	return text
}

func (s *session) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	err := s.locker.Close(ctx)
	if s.client != nil {
		err = errors.Join(err, s.client.Close())
	}
	if s.journal != nil {
		err = errors.Join(err, s.journal.Close())
	}
	return err
}
