package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var errMalformedURL = usagef("-redis: the URL is malformed: want redis://[user:password@]host:port[/database], " +
	"with a password in percent-encoding")

// openRedis returns a client of the deployment at a URL. If the server belongs to a Cluster, that is a Cluster's
// client: the server would answer any other one that most keys have moved.
func openRedis(ctx context.Context, text string, timeout time.Duration) (redis.UniversalClient, error) {
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" { // err has the password, and the fragment the rest of one that has a #
		return nil, errMalformedURL
	}
	switch q := u.Query(); {
	case q.Has("master_name"):
		return openSentinel(u)
	case q.Has("addr"):
		return openCluster(u)
	}
	opts, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, wrongURL(u, err)
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
		return nil, wrongURL(u, err)
	}
	opts.ContextTimeoutEnabled, opts.DialerRetries = true, 1
	return redis.NewClusterClient(opts), nil
}

func openSentinel(u *url.URL) (redis.UniversalClient, error) {
	opts, err := redis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, wrongURL(u, err)
	}
	opts.ContextTimeoutEnabled, opts.DialerRetries = true, 1
	return redis.NewFailoverClient(opts), nil
}

// wrongURL returns the error of a URL that go-redis does not accept, without its password. If the password has a / or a
// ? that is not encoded, its end is in the path or the query, and an @ follows.
func wrongURL(u *url.URL, err error) error {
	text := err.Error()
	if strings.Contains(text, "@") {
		return errMalformedURL
	}
	if password, ok := u.User.Password(); ok && password != "" {
		text = strings.ReplaceAll(text, password, "xxxxx")
	}
	return usagef("-redis: %s", text)
}
