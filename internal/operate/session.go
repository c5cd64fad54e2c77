package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
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
	statuses  Statuses            // of scan
	options   []middleware.Option // that decide how a response is stored
}

func (c *config) commonFlags(set *flag.FlagSet, takesKey bool) {
	set.StringVar(&c.redis, "redis", "", "`URL` of Redis, or none (default: REDIS_URL from the environment)")
	set.StringVar(&c.journal, "journal", "", "`URL` of the journal's database (default: JOURNAL_URL from the environment)")
	set.StringVar(&c.namespace, "namespace", "", "the `name` given to lock.New; a whole KEY begins with it")
	set.BoolVar(&c.json, "json", false, "print JSON")
	set.DurationVar(&c.timeout, "timeout", 5*time.Second, "time for one operation of Redis or the journal")
	set.StringVar(&c.reading.keysFile, "keys-file", "", "the `file` with the keys of middleware.WithEncryption")
	set.BoolVar(&c.reading.plaintext, "plaintext-reads", false, "as middleware.WithPlaintextReads")
	if takesKey {
		c.request.flags(set)
	}
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
	case cfg.redis == none && s.lock != "":
		return nil, usagef("-lock: a lock is in Redis, and -redis is %s", none)
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

// connect opens what the session needs, or nothing if it fails. A lock is in Redis alone.
func (s *session) connect(ctx context.Context) (err error) {
	if s.OpenJournal != nil && s.lock == "" {
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
	described := s.request.isGiven()
	switch {
	case !takesKey && len(args) > 0:
		return usagef("want no argument, got %d", len(args))
	case !takesKey:
		return nil
	case s.change.list != "" && (described || s.lock != "" || len(args) > 0):
		return usagef("give KEY or -list, but only one of them")
	case s.change.list != "":
		return nil
	case described && len(args) > 0, s.lock != "" && (described || len(args) > 0):
		return usagef("give KEY, or -user, -method, -path and -key, or -lock, but only one of them")
	case described:
		return s.request.check(s.namespace)
	case s.lock != "" && s.namespace == "":
		return usagef("-namespace is missing")
	case s.lock != "":
		return nil
	case len(args) == 0:
		return usagef("KEY is missing")
	case len(args) > 1:
		return usagef("want one KEY, got %d", len(args))
	case args[0] == "":
		return usagef("KEY is empty")
	}
	s.key = args[0]
	if namespace, _, ok := strings.Cut(s.key, ":{"); ok && s.namespace == "" {
		s.namespace = namespace
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

// madeOf returns what the key was made of.
func (s *session) madeOf() string {
	if s.lock != "" {
		return fmt.Sprintf("namespace %q and lock %q", s.namespace, s.lock)
	}
	return fmt.Sprintf("namespace %q, %s, and -key", s.namespace, s.request)
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
