package operate

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// errWrongURL is the error of every URL that is not accepted. It does not say what is wrong: if a password is not in
// percent-encoding, its parts can be anywhere in what url.Parse and go-redis have made of the URL.
var errWrongURL = usagef("-redis: want redis://[user:password@]host:port[/database], with a password in percent-encoding, " +
	"and no options but those of go-redis")

// openRedis returns a client of the deployment at a URL. If the server belongs to a Cluster, that is a Cluster's
// client: the server would answer any other one that most keys have moved.
func openRedis(ctx context.Context, text string, timeout time.Duration) (redis.UniversalClient, error) {
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || strings.Contains(u.Opaque+u.EscapedPath()+u.RawQuery, "@") {
		return nil, errWrongURL // a password with a # or / or ? that is not encoded ends there
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errWrongURL
	}
	for _, name := range ofService {
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	switch {
	case q.Has("master_name"):
		return openSentinel(u)
	case q.Has("addr"):
		return openCluster(u)
	}
	opts, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, errWrongURL
	}
	opts.ContextTimeoutEnabled, opts.DialerRetries = true, 1
	client := redis.NewClient(opts)
	clustered, err := isClustered(ctx, client, timeout)
	if err != nil || !clustered {
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return client, nil
	}
	if err := client.Close(); err != nil {
		return nil, err
	}
	return openCluster(u)
}

// ofService are the options of go-redis that are for a service's load. The command has its own: with some numbers go-redis
// panics, or sends nothing and returns no error.
var ofService = []string{
	"pool_size", "pool_timeout", "min_idle_conns", "max_idle_conns", "max_active_conns", "max_concurrent_dials",
	"max_retries", "min_retry_backoff", "max_retry_backoff", "max_redirects", "dialer_retries", "dialer_retry_timeout",
	"failing_timeout_seconds",
}

// isClustered reports whether the server is a node of a Cluster, false if an ACL or an old server hides that.
func isClustered(ctx context.Context, client *redis.Client, timeout time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := client.Info(ctx, "cluster").Result()
	var refused redis.Error
	if errors.As(err, &refused) && !redis.IsAuthError(err) { // an ACL, or a server that does not know the section
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("redis: %w", err)
	}
	return strings.Contains(info, "cluster_enabled:1"), nil
}

func openCluster(u *url.URL) (redis.UniversalClient, error) {
	of := *u
	of.Path = "" // a Cluster has no databases
	opts, err := redis.ParseClusterURL(of.String())
	if err != nil {
		return nil, errWrongURL
	}
	opts.ContextTimeoutEnabled, opts.DialerRetries = true, 1
	return redis.NewClusterClient(opts), nil
}

func openSentinel(u *url.URL) (redis.UniversalClient, error) {
	opts, err := redis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, errWrongURL
	}
	opts.ContextTimeoutEnabled, opts.DialerRetries = true, 1
	return redis.NewFailoverClient(opts), nil
}
