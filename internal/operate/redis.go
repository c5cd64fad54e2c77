package operate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// errWrongURL is the error of every URL that is not accepted. It does not say what is wrong: if a password is not in
// percent-encoding, its parts can be anywhere in what url.Parse and go-redis have made of the URL.
var errWrongURL = UsageError("-redis: want redis://[user:password@]host:port[/database], with a password in percent-encoding, " +
	"and no options but those of go-redis")

// openRedis returns a client of the deployment at a URL. If the server belongs to a Cluster, that is a Cluster's
// client: the server would answer any other one that most keys have moved.
func openRedis(ctx context.Context, text string, timeout time.Duration) (redis.UniversalClient, error) {
	opts, err := redisOptions(text)
	if err != nil {
		return nil, errWrongURL
	}
	client := redis.NewUniversalClient(opts)
	if opts.MasterName != "" || len(opts.Addrs) > 1 {
		return client, nil
	}
	opts.IsClusterMode, err = isClustered(ctx, client, timeout)
	if err == nil && !opts.IsClusterMode {
		return client, nil
	}
	if err := errors.Join(err, client.Close()); err != nil {
		return nil, err
	}
	return redis.NewUniversalClient(opts), nil
}

// redisOptions parses a URL. It leaves out the options for pools and retries, which are for a service's load: with some
// numbers go-redis panics, or sends nothing and returns no error.
func redisOptions(text string) (*redis.UniversalOptions, error) {
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || strings.Contains(u.Opaque+u.EscapedPath()+u.RawQuery, "@") {
		return nil, errWrongURL // a password with a # or / or ? that is not encoded ends there
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	opts := &redis.UniversalOptions{
		MasterName: q.Get("master_name"), Username: q.Get("username"), Password: q.Get("password"), // of the master
		ContextTimeoutEnabled: true, DialerRetries: 1,
	}
	others := q["addr"]
	for _, addr := range others {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, err
		}
	}
	for _, name := range ofGroups {
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	server, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	opts.Addrs, opts.DB = append([]string{server.Addr}, others...), server.DB
	opts.TLSConfig, opts.Protocol, opts.ClientName = server.TLSConfig, server.Protocol, server.ClientName
	if opts.MasterName != "" {
		opts.SentinelUsername, opts.SentinelPassword = server.Username, server.Password
	} else {
		opts.Username, opts.Password = server.Username, server.Password
	}
	return opts, nil
}

// ofGroups are the options that redis.ParseURL does not have, but those for the URL of a Cluster or of Sentinels.
var ofGroups = []string{
	"addr", "master_name", "username", "password", "max_redirects", "failing_timeout_seconds", "dialer_retries", "dialer_retry_timeout",
	"read_only", "route_by_latency", "route_randomly", "replica_only", "use_disconnected_replicas",
}

// isClustered reports whether the server is a node of a Cluster, false if an ACL or an old server hides that.
func isClustered(ctx context.Context, client redis.UniversalClient, timeout time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := client.Info(ctx, "cluster").Result()
	var refused redis.Error
	switch {
	case errors.As(err, &refused) && !redis.IsAuthError(err): // an ACL, or a server that does not know the section
		return false, nil
	case err != nil:
		return false, fmt.Errorf("redis: %w", err)
	}
	return strings.Contains(info, "cluster_enabled:1"), nil
}
