package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
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
	set.BoolVar(&r.cookies, "cookies", false, "as middleware.WithCookies")
	set.IntVar(&r.compression, "compression", -1, "as middleware.WithCompression, in `bytes`; -1 for none")
	set.DurationVar(&r.retention, "retention", 24*time.Hour, "how long retries get the response, as middleware.WithRetention")
	set.IntVar(&r.maxResponse, "max-response", 1<<20, "as middleware.WithMaxResponse, in `bytes`")
}

// maxValue is how many bytes Redis stores under a key, unless it is configured otherwise.
const maxValue = 512 << 20

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
	said, err := r.resolution(env.Stdin)
	if err != nil {
		return nil, err
	}
	resolve := change{name: "resolve", did: "freed", now: lock.Free, hint: "the next try runs the request"}
	if !r.nothingHappened {
		resolve.did, resolve.now = "resolved", lock.Settled
		resolve.hint = fmt.Sprintf("every retry gets %d for %v", r.status, r.retention)
	}
	resolve.make = func(ctx context.Context, s *session, f finding) error {
		return s.resolve(ctx, f, c.change.token, said, r.nothingHappened)
	}
	return resolve.run, nil
}

// resolve tells Redis and the journal what happened. If nothing happened it also frees an abandoned claim that has another
// token than the row, see finding.token: its run did not begin, because the row was there.
func (s *session) resolve(ctx context.Context, f finding, token string, said middleware.Resolution, free bool) error {
	ofRedis, ofRow := splitToken(token)
	if ofRow == f.row.Token && f.row.State == journal.Done { // that token is not the run's
		ofRow = f.row.Run
	}
	err := s.once.Resolve(ctx, f.info.Key, ofRow, said)
	switch {
	case errors.Is(err, middleware.ErrJournaled):
		return fmt.Errorf("%w: use %s", err, withDrivers)
	case err != nil || !free || ofRow == ofRedis || f.info.State != lock.Abandoned:
		return err
	}
	if err := s.locker.Forget(ctx, f.info.Key, ofRedis); err != nil {
		return fmt.Errorf("the journal's row is freed, but not the claim in Redis: %v", err)
	}
	return nil
}

// resolution returns the outcome that the flags give.
func (r *resolveConfig) resolution(stdin io.Reader) (said middleware.Resolution, err error) {
	answered := r.status != 0 || r.header != nil || r.bodyFile != ""
	switch {
	case r.nothingHappened && answered:
		return said, usagef("give -nothing-happened or a response, but not both")
	case r.nothingHappened:
		return middleware.NothingHappened(), nil
	case r.status == 0:
		return said, usagef("give -nothing-happened, or the response's -status")
	}
	body, err := r.body(stdin)
	return middleware.Responded(r.status, http.Header(r.header), body), err
}

// body reads the body. It stops one byte after maxResponse, so that Resolve sees that the body is too long.
func (r *resolveConfig) body(stdin io.Reader) ([]byte, error) {
	from := stdin
	switch r.bodyFile {
	case "":
		return nil, nil
	case "-":
	default:
		f, err := os.Open(r.bodyFile)
		if err != nil {
			return nil, usagef("-body-file: %w", err)
		}
		defer f.Close()
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, int64(r.maxResponse)+1))
	if err != nil {
		return nil, usagef("-body-file: %w", err)
	}
	return b, nil
}

// check returns an error if an option is not one that the middleware takes.
func (r *resolveConfig) check() error {
	switch {
	case r.retention < time.Millisecond:
		return usagef("-retention: %v is below a millisecond", r.retention)
	case r.maxResponse < 0 || r.maxResponse > maxValue:
		return usagef("-max-response: %d is not from 0 to %d", r.maxResponse, maxValue)
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
