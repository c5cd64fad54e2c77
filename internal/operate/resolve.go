package operate

import (
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

// resolveConfig has the flags of resolve.
type resolveConfig struct {
	nothingHappened bool
	status          int
	header          headerFlag
	bodyFile        string
	valueFile       string
	raw             bool
	failed          string

	cookies     bool
	compression int
	retention   time.Duration
	maxResponse int
}

func resolveFlags(set *flag.FlagSet, c *config) {
	c.changeFlags(set)
	r := &c.resolve
	set.BoolVar(&r.nothingHappened, "nothing-happened", false, "the request took no effect: the next try runs it")
	set.IntVar(&r.status, "status", 0, "the `status` of the response that retries get")
	set.Var(&r.header, "header", "a `field` of its header, 'Name: value'; any number of them")
	set.StringVar(&r.bodyFile, "body-file", "", "the `file` with its body, - for the standard input (default: no body)")
	set.StringVar(&r.valueFile, "value", "", "for a function: the `file` with its value as JSON, - for the standard input")
	set.BoolVar(&r.raw, "raw", false, "the -value is what the codec of once.WithCodec encodes, not JSON")
	set.StringVar(&r.failed, "failed", "", "for a function: the `text` of its final error")
	set.BoolVar(&r.cookies, "cookies", false, "as middleware.WithCookies")
	set.IntVar(&r.compression, "compression", -1, "as middleware.WithCompression, in `bytes`; -1 for none")
	set.DurationVar(&r.retention, "retention", 24*time.Hour, "how long retries get it, as WithRetention")
	set.IntVar(&r.maxResponse, "max-response", 1<<20, "as middleware.WithMaxResponse, in `bytes`")
}

const (
	maxInRedis = 512 << 20 // bytes that Redis stores under a key, unless it is configured otherwise
	maxValue   = 1 << 20   // bytes of a function's value
)

// headerFlag is a header whose fields are given one by one.
type headerFlag http.Header

func (h *headerFlag) String() string { return "" }

func (h *headerFlag) Set(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		return errors.New("want 'Name: value'")
	}
	if *h == nil {
		*h = headerFlag{}
	}
	http.Header(*h).Add(name, strings.TrimSpace(value))
	return nil
}

// prepareResolve returns the action that settles an abandoned claim with the outcome that the flags give.
func prepareResolve(env Environment, c *config) (action, error) {
	if err := c.change.check(); err != nil {
		return nil, err
	}
	r := &c.resolve
	if err := r.check(); err != nil {
		return nil, err
	}
	c.options = r.options()
	said, gets, err := r.resolution(env.Stdin)
	if err != nil {
		return nil, err
	}
	resolve := change{name: "resolve", did: "freed", now: lock.Free, hint: "the next try runs"}
	if !r.nothingHappened {
		resolve.did, resolve.now = "resolved", lock.Settled
		resolve.hint = fmt.Sprintf("every retry gets %s for %v", gets, r.retention)
	}
	resolve.make = func(ctx context.Context, s *session, f Finding) error {
		return s.resolve(ctx, f, c.change.token, said, r.nothingHappened)
	}
	return resolve.run, nil
}

// resolve tells Redis and the journal what happened. If nothing happened it also frees an abandoned claim that has another
// token than the row, see tokenOf: its run did not begin, because the row was there.
func (s *session) resolve(ctx context.Context, f Finding, token string, said middleware.Resolution, free bool) error {
	ofRedis, ofRow := splitToken(token)
	if ofRow == f.Row.Token && f.Row.State == journal.Done { // that token is not the run's
		ofRow = f.Row.Run
	}
	err := s.once.Resolve(ctx, f.Redis.Key, ofRow, said)
	switch {
	case errors.Is(err, middleware.ErrJournaled):
		return fmt.Errorf("%w: use %s", err, withDrivers)
	case err != nil || !free || ofRow == ofRedis || f.Redis.State != lock.Abandoned:
		return err
	}
	if err := s.locker.Forget(ctx, f.Redis.Key, ofRedis); err != nil {
		return fmt.Errorf("the journal's row is freed, but not the claim in Redis: %v", err)
	}
	return nil
}

// resolution returns the outcome that the flags give, and what retries get.
func (r *resolveConfig) resolution(stdin io.Reader) (said middleware.Resolution, gets string, err error) {
	given := 0
	for _, is := range []bool{r.nothingHappened, r.status != 0 || r.header != nil || r.bodyFile != "", r.valueFile != "" || r.raw, r.failed != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return said, "", usagef("give one of -nothing-happened, -status, -value and -failed")
	case r.nothingHappened:
		return middleware.NothingHappened(), "", nil
	case r.failed != "":
		return middleware.Failed(r.failed), "the error", nil
	case r.status != 0:
		body, err := readFile("body-file", r.bodyFile, stdin, r.maxResponse)
		return middleware.Responded(r.status, http.Header(r.header), body), strconv.Itoa(r.status), err
	case r.valueFile == "":
		return said, "", usagef("give -nothing-happened or, of an HTTP request, the response's -status or, of a function, its -value or -failed")
	}
	value, err := readFile("value", r.valueFile, stdin, maxValue)
	if err == nil && !r.raw && !json.Valid(value) {
		err = usagef("-value: this is not JSON; if the service has once.WithCodec, add -raw")
	}
	return middleware.Returned(value), "the value", err
}

// readFile reads the file of a flag, - for stdin. It stops one byte after limit, so that Resolve sees that it is too long.
func readFile(flag, name string, stdin io.Reader, limit int) ([]byte, error) {
	from := stdin
	switch name {
	case "":
		return nil, nil
	case "-":
	default:
		f, err := os.Open(name)
		if err != nil {
			return nil, usagef("-%s: %w", flag, err)
		}
		defer f.Close()
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		return nil, usagef("-%s: %w", flag, err)
	}
	return b, nil
}

// check returns an error if an option is not one that the middleware takes.
func (r *resolveConfig) check() error {
	switch {
	case r.retention < time.Millisecond:
		return usagef("-retention: %v is below a millisecond", r.retention)
	case r.maxResponse < 0 || r.maxResponse > maxInRedis:
		return usagef("-max-response: %d is not from 0 to %d", r.maxResponse, maxInRedis)
	case r.compression < -1:
		return usagef("-compression: %d is negative", r.compression)
	}
	return nil
}

// options returns the middleware's options that the flags give.
func (r *resolveConfig) options() []middleware.Option {
	opts := []middleware.Option{middleware.WithRetention(r.retention), middleware.WithMaxResponse(r.maxResponse)}
	if r.cookies {
		opts = append(opts, middleware.WithCookies())
	}
	if r.compression >= 0 {
		opts = append(opts, middleware.WithCompression(r.compression))
	}
	return opts
}
