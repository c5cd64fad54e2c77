package operate

import (
	"context"
	"errors"
	"flag"
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
	command string
	redis   string
	journal string

	redisFailed error // why Redis could not be asked, and -redis is none; nil otherwise

	namespace string
	lock      string // its name, given instead of KEY
	json      bool
	timeout   time.Duration
	keysFile  string
	request   requestFlags
	change    changeFlags
	resolve   resolveFlagValues
	rate      int
	statuses  statuses // of scan
}

func (c *config) flags(set *flag.FlagSet) {
	set.StringVar(&c.redis, "redis", "", "`URL` of Redis, or none (default: REDIS_URL from the environment)")
	set.StringVar(&c.journal, "journal", "", "`URL` of the journal's database (default: JOURNAL_URL from the environment)")
	set.StringVar(&c.namespace, "namespace", "", "the `name` given to lock.New; a whole KEY begins with it")
	set.BoolVar(&c.json, "json", false, "print JSON")
	set.DurationVar(&c.timeout, "timeout", 5*time.Second, "time for one operation of Redis or the journal")
	set.StringVar(&c.keysFile, "keys-file", "", "the `file` with the keys of middleware.WithEncryption")
	if c.takesKey() {
		c.request.flags(set)
	}
}

func (c *config) takesKey() bool { return c.command != "scan" }

// session is one command with its connections to Redis and to the journal's database.
type session struct {
	Environment
	*config
	log     *slog.Logger
	client  redis.UniversalClient // nil without Redis
	locker  *lock.Locker
	journal Journal                // nil without a database driver
	once    *middleware.Middleware // serves no request
	opts    []middleware.Option    // of once
	key     string                 // empty for scan
}

const (
	none        = "none" // stands for the URL of Redis, if the service has none
	withDrivers = "github.com/onceguard/onceguard/sqljournal/cmd/onceguard"
)

// newSession returns a session to be closed, also with an error.
func newSession(ctx context.Context, env Environment, cfg *config, args []string) (*session, error) {
	// Not as the flags' defaults, which -help would print with their passwords.
	if cfg.redis == "" {
		cfg.redis = env.Getenv("REDIS_URL")
	}
	if cfg.journal == "" {
		cfg.journal = env.Getenv("JOURNAL_URL")
	}
	s := &session{Environment: env, config: cfg, log: slog.New(slog.NewTextHandler(env.Stderr, nil))}
	if err := s.findKey(args); err != nil {
		return s, err
	}
	if err := s.check(); err != nil {
		return s, err
	}
	if cfg.keysFile != "" {
		keys, err := readKeys(cfg.keysFile)
		if err != nil {
			return s, err
		}
		s.opts = append(s.opts, middleware.WithEncryption(keys...), middleware.WithPlaintextReads())
	}
	return s, s.connect(ctx)
}

// check returns an error if a flag that all commands have is missing or wrong.
func (s *session) check() error {
	switch {
	case s.redis == "":
		return UsageError("-redis is missing, and REDIS_URL is not set")
	case s.OpenJournal == nil && (s.redis == none || s.config.journal != ""):
		return UsageError("the service has a journal, and this command has no database driver: install %s", withDrivers)
	case s.redis == none && s.lock != "":
		return UsageError("-lock: a lock is in Redis, and -redis is %s", none)
	case s.OpenJournal != nil && s.config.journal == "":
		return UsageError("-journal is missing, and JOURNAL_URL is not set")
	case s.namespace == "":
		return UsageError("-namespace is missing, and no KEY begins with one")
	case strings.ContainsAny(s.namespace, "{}"):
		return UsageError("-namespace: a namespace has no braces")
	case s.timeout < 10*time.Millisecond || s.timeout > time.Hour:
		return UsageError("-timeout: %v is not between 10ms and 1h", s.timeout)
	}
	return nil
}

// connect opens what the session needs. A lock is in Redis alone.
func (s *session) connect(ctx context.Context) (err error) {
	if s.OpenJournal != nil && s.lock == "" {
		if s.journal, err = s.OpenJournal(ctx, s.config.journal, s.namespace); err != nil {
			return err
		}
		s.opts = append(s.opts, middleware.WithJournal(s.journal))
	}
	if s.command == "resolve" {
		s.opts = append(s.opts, middleware.WithRetention(s.resolve.retention), middleware.WithMaxResponse(maxBody))
	}
	s.locker = lock.None(s.namespace)
	if s.redis != none {
		if s.client, err = openRedis(ctx, s.redis, s.timeout); err != nil {
			return err
		}
		s.locker = lock.New(s.client, s.namespace, lock.WithOpTimeout(s.timeout))
	}
	s.once = middleware.New(s.locker, keyfunc.Anonymous(), s.opts...)
	return nil
}

func (s *session) close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	if s.locker != nil {
		err = s.locker.Close(ctx)
	}
	if s.client != nil {
		err = errors.Join(err, s.client.Close())
	}
	if s.journal != nil {
		err = errors.Join(err, s.journal.Close())
	}
	return err
}
