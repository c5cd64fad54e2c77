package main

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

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// resolveConfig has the flags of resolve.
type resolveConfig struct {
	nothingHappened bool
	status          int
	header          headerFlag
	bodyFile        string

	keysFile       string
	plaintextReads bool
	cookies        bool
	compression    int
	retention      time.Duration
	maxResponse    int
}

func resolveFlags(set *flag.FlagSet, c *config) {
	c.changeFlags(set)
	r := &c.resolve
	set.BoolVar(&r.nothingHappened, "nothing-happened", false, "the request took no effect: the next try runs it")
	set.IntVar(&r.status, "status", 0, "the `status` of the response that retries get")
	set.Var(&r.header, "header", "a `field` of its header, 'Name: value'; any number of them")
	set.StringVar(&r.bodyFile, "body-file", "", "the `file` with its body, - for the standard input (default: no body)")
	set.StringVar(&r.keysFile, "keys-file", "", "the `file` with the keys of middleware.WithEncryption")
	set.BoolVar(&r.plaintextReads, "plaintext-reads", false, "as middleware.WithPlaintextReads")
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
func prepareResolve(env environment, c *config) (action, error) {
	if err := c.change.check(); err != nil {
		return nil, err
	}
	r := &c.resolve
	opts, err := r.options()
	if err != nil {
		return nil, err
	}
	said, err := r.resolution(env.stdin)
	if err != nil {
		return nil, err
	}
	resolve := change{name: "resolve", did: "freed", now: lock.Free, hint: "the next try runs the request"}
	if !r.nothingHappened {
		resolve.did, resolve.now = "resolved", lock.Settled
		resolve.hint = fmt.Sprintf("every retry gets %d for %v", r.status, r.retention)
	}
	resolve.make = func(ctx context.Context, s *session, info lock.Info) error {
		once := middleware.New(s.locker, keyfunc.Anonymous(), opts...) // no request is served, so no key is derived
		err := once.Resolve(ctx, info.Key, c.change.token, said)
		if errors.Is(err, middleware.ErrJournaled) {
			err = fmt.Errorf("%w; this command cannot ask it: use Middleware.Resolve with the journal, or its Sweep", err)
		}
		return err
	}
	return resolve.run, nil
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

// options returns the middleware's options that the flags give.
func (r *resolveConfig) options() (opts []middleware.Option, err error) {
	switch {
	case r.retention < time.Millisecond:
		return nil, usagef("-retention: %v is below a millisecond", r.retention)
	case r.maxResponse < 0 || r.maxResponse > maxValue:
		return nil, usagef("-max-response: %d is not from 0 to %d", r.maxResponse, maxValue)
	case r.compression < -1:
		return nil, usagef("-compression: %d is negative", r.compression)
	case r.plaintextReads && r.keysFile == "":
		return nil, usagef("-plaintext-reads means nothing without -keys-file")
	}
	opts = []middleware.Option{middleware.WithRetention(r.retention), middleware.WithMaxResponse(r.maxResponse)}
	if r.keysFile != "" {
		keys, err := readKeys(r.keysFile)
		if err != nil {
			return nil, err
		}
		opts = append(opts, middleware.WithEncryption(keys...))
	}
	if r.plaintextReads {
		opts = append(opts, middleware.WithPlaintextReads())
	}
	if r.cookies {
		opts = append(opts, middleware.WithCookies())
	}
	if r.compression >= 0 {
		opts = append(opts, middleware.WithCompression(r.compression))
	}
	return opts, nil
}
