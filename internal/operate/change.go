package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// changeFlags are the flags of commands that change something.
type changeFlags struct {
	token, reason string
	evenIfLive    bool
	list          string // the file with keys and tokens, given instead of a token and KEY
}

func (c *changeFlags) flags(set *flag.FlagSet) {
	set.StringVar(&c.token, "token", "", "the `token` that inspect prints; nothing else is changed")
	set.StringVar(&c.reason, "reason", "", "`why`, for the log")
}

func (c *changeFlags) check() error {
	switch {
	case c.list != "" && (c.token != "" || c.evenIfLive):
		return UsageError("-list: give neither -token nor -even-if-live")
	case c.list == "" && c.token == "":
		return UsageError("-token is missing: inspect prints it")
	case strings.TrimSpace(c.reason) == "":
		return UsageError("-reason is missing: it is logged")
	}
	return nil
}

func forgetFlags(set *flag.FlagSet, c *config) {
	c.change.flags(set)
	lockFlag(set, c)
	set.StringVar(&c.change.list, "list", "", "in place of -token and KEY: the `file` with what scan -status -json has printed, "+
		"- for the standard input")
	set.BoolVar(&c.change.evenIfLive, "even-if-live", false, "remove a claim even if its lease has not run out")
}

// prepareForget returns the action that removes the claim or the stored response that the token names.
func prepareForget(env Environment, c *config) (action, error) {
	forget := change{did: "forgotten", hint: "the next try runs", alone: ", unless a journal has its outcome", make: (*session).forget}
	if err := c.change.check(); err != nil || c.change.list == "" {
		return forget.run, err
	}
	all, err := readList(c.change.list, env.Stdin)
	return func(ctx context.Context, s *session) error { return forget.runAll(ctx, s, all) }, err
}

// forget removes the row of the journal first, which decides, and then what Redis has.
func (s *session) forget(ctx context.Context, f *Finding) error {
	ofRedis, ofRow := splitToken(s.change.token)
	hasRow := f.Row.State != journal.Absent
	if hasRow {
		switch {
		case f.Redis.State != lock.Free && f.Redis.Token != ofRedis: // found out before anything is removed
			return fmt.Errorf("%w: Redis has another", lock.ErrChanged)
		case f.Redis.State == lock.Held && !s.change.evenIfLive:
			return lock.ErrLive
		}
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		if err := s.journal.Remove(ctx, f.Redis.Key, ofRow, s.change.evenIfLive); err != nil {
			return err
		}
	}
	if f.Redis.State == lock.Free {
		return nil
	}
	err := s.locker.Forget(ctx, f.Redis.Key, ofRedis, s.change.evenIfLive)
	if err != nil && hasRow { // not wrapped: the row is removed
		return fmt.Errorf("the journal's row is removed, but not what Redis has: %v", err)
	}
	return err
}

// change is a change that a command makes to a key.
type change struct {
	did   string // what was done, for the output
	hint  string // what happens next, for people
	alone string // added to hint if this command cannot ask a journal
	make  func(*session, context.Context, *Finding) error
}

// run changes the key of the command line.
func (c change) run(ctx context.Context, s *session) error {
	key, err := s.storageKey()
	if err != nil {
		return err
	}
	return c.runOne(ctx, s, key)
}

// listed is a key of a list, with the token of what is to be removed.
type listed struct{ Key, Token string }

const maxList = 256 << 20 // bytes

// readList reads lines of JSON, as scan prints them.
func readList(name string, stdin io.Reader) (all []listed, err error) {
	text, err := readFile("list", name, stdin, maxList)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(bytes.NewReader(text)); ; {
		var l listed
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil || l.Key == "" || l.Token == "":
			return nil, UsageError("-list: value %d is not what scan -json prints", len(all)+1)
		}
		all = append(all, l)
	}
}

// errOnlyStored is the error of a key in a list that has no outcome: for each of these somebody looks into the ledger.
var errOnlyStored = errors.New("-list removes only what is stored")

// runAll changes the keys of a list. It goes on after a key that is free or was refused, and ends with another error.
func (c change) runAll(ctx context.Context, s *session, all []listed) error {
	for _, l := range all {
		if _, err := s.locker.ParseKey(l.Key); err != nil {
			return err
		}
	}
	made := 0
	var refused error
	for _, l := range all {
		s.change.token = l.Token
		err := c.runOne(ctx, s, l.Key)
		switch exitCode(err) {
		case exitDone:
			made++
		case exitFree:
		case exitRefused:
			refused = err
		default:
			return fmt.Errorf("%d of %d %s before this: %w", made, len(all), c.did, err)
		}
	}
	fmt.Fprintf(s.Stderr, "%s: %d of %d\n", c.did, made, len(all))
	return refused
}

// runOne looks at the key, makes the change, and logs who has made it, why, and to what.
func (c change) runOne(ctx context.Context, s *session, key string) error {
	f, err := s.find(ctx, key)
	if errors.Is(err, lock.ErrNotStorageKey) { // it may be a raw key, which is not to be logged
		return err
	}
	before := "unknown"
	if err == nil || errors.Is(err, errFree) {
		before = f.State().String()
	}
	log := s.log.With("user", s.User, "reason", s.change.reason, "key", f.Redis.Key, "token", s.change.token, "before", before)
	isListed := s.change.list != ""
	switch {
	case err != nil:
	case isListed && f.State() != lock.Settled:
		err = errOnlyStored
	default:
		err = c.make(s, ctx, &f)
	}
	if err != nil {
		log.Warn(s.command, "err", err)
		if errors.Is(err, errFree) && !s.json && !isListed {
			fmt.Fprintln(s.Stdout, "nothing was changed")
			s.writeFacts(&f)
		}
		return err
	}
	log.Info(s.command, "result", c.did)
	if s.json {
		return writeJSON(s.Stdout, facts{"key": f.Redis.Key, "result": c.did, "state_before": before})
	}
	hint := c.hint
	switch {
	case isListed:
		hint = f.Redis.Key
	case s.lock != "" || f.Redis.IsLock:
		hint = "the next caller gets it"
	case s.journal == nil:
		hint += c.alone
	}
	fmt.Fprintf(s.Stdout, "%s: it was %s; %s\n", c.did, before, hint)
	return nil
}

// resolveFlagValues are the flags of resolve.
type resolveFlagValues struct {
	nothingHappened bool
	status          int
	header          http.Header
	bodyFile        string
	valueFile       string
	raw             bool
	failed          string
	retention       time.Duration
}

func resolveFlags(set *flag.FlagSet, c *config) {
	c.change.flags(set)
	r := &c.resolve
	r.header = http.Header{}
	set.BoolVar(&r.nothingHappened, "nothing-happened", false, "the request took no effect: the next try runs it")
	set.IntVar(&r.status, "status", 0, "the `status` of the response that retries get")
	set.Func("header", "a `field` of its header, 'Name: value'; any number of them", func(s string) error { return AddField(r.header, s) })
	set.StringVar(&r.bodyFile, "body-file", "", "the `file` with its body, - for the standard input (default: no body)")
	set.StringVar(&r.valueFile, "value", "", "for a function: the `file` with its value as JSON, - for the standard input")
	set.BoolVar(&r.raw, "raw", false, "the -value is what the codec of once.WithCodec encodes, not JSON")
	set.StringVar(&r.failed, "failed", "", "for a function: the `text` of its final error")
	set.DurationVar(&r.retention, "retention", 24*time.Hour, "how long retries get it, as WithRetention")
}

// AddField adds a line to a header.
func AddField(header http.Header, line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		return errors.New("want 'Name: value'")
	}
	header.Add(name, strings.TrimSpace(value))
	return nil
}

const (
	maxBody  = 64 << 20 // bytes of a response
	maxValue = 1 << 20  // bytes of a function's value
)

// prepareResolve returns the action that settles an abandoned claim with the outcome that the flags give.
func prepareResolve(env Environment, c *config) (action, error) {
	r := &c.resolve
	if err := c.change.check(); err != nil {
		return nil, err
	}
	if r.retention < time.Millisecond {
		return nil, UsageError("-retention: %v is below a millisecond", r.retention)
	}
	said, gets, err := r.resolution(env.Stdin)
	resolve := change{did: "resolved", hint: fmt.Sprintf("every retry gets %s for %v", gets, r.retention)}
	if r.nothingHappened {
		resolve.did, resolve.hint = "freed", "the next try runs"
	}
	resolve.make = func(s *session, ctx context.Context, f *Finding) error {
		err := f.Resolve(ctx, s.once, s.locker, c.change.token, said, r.nothingHappened)
		if errors.Is(err, middleware.ErrJournaled) {
			return fmt.Errorf("%w: use %s", err, withDrivers)
		}
		return err
	}
	return resolve.run, err
}

// resolution returns the outcome that the flags give, and what retries get.
func (r *resolveFlagValues) resolution(stdin io.Reader) (said middleware.Resolution, gets string, err error) {
	isResponse, isValue := r.status != 0 || len(r.header) > 0 || r.bodyFile != "", r.valueFile != "" || r.raw
	switch {
	case count(r.nothingHappened, isResponse, isValue, r.failed != "") > 1:
		return said, "", UsageError("give one of -nothing-happened, -status, -value and -failed")
	case r.nothingHappened:
		return middleware.NothingHappened(), "", nil
	case r.failed != "":
		return middleware.Failed(r.failed), "the error", nil
	case r.status != 0:
		body, err := readFile("body-file", r.bodyFile, stdin, maxBody)
		return middleware.Responded(r.status, r.header, body), strconv.Itoa(r.status), err
	case r.valueFile == "":
		return said, "", UsageError("give -nothing-happened or, of an HTTP request, the response's -status or, " +
			"of a function, its -value or -failed")
	}
	value, err := readFile("value", r.valueFile, stdin, maxValue)
	if err == nil && !r.raw && !json.Valid(value) {
		err = UsageError("-value: this is not JSON; if the service has once.WithCodec, add -raw")
	}
	return middleware.Returned(value), "the value", err
}

// readFile reads the file of a flag, - for stdin. Without a name it returns nothing.
func readFile(flag, name string, stdin io.Reader, limit int) (b []byte, err error) {
	from := stdin
	switch name {
	case "":
		return nil, nil
	case "-":
	default:
		f, err := os.Open(name)
		if err != nil {
			return nil, UsageError("-%s: %w", flag, err)
		}
		defer f.Close()
		from = f
	}
	b, err = io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err == nil && len(b) > limit {
		err = fmt.Errorf("more than %d bytes are too many", limit)
	}
	if err != nil {
		return nil, UsageError("-%s: %w", flag, err)
	}
	return b, nil
}
