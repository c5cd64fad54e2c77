package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
)

// resolver looks up the addresses of a host.
type resolver func(ctx context.Context, network, host string) ([]netip.Addr, error)

// checkReach returns an error unless every address of every URL is on this machine or on a private network.
func checkReach(ctx context.Context, lookup resolver, urls ...*url.URL) error {
	for _, u := range urls {
		if u == nil {
			continue
		}
		addresses, err := lookup(ctx, "ip", u.Hostname())
		if err != nil {
			return fmt.Errorf("%s: %w", u.Hostname(), err)
		}
		for _, a := range addresses {
			if !isNear(a) {
				return fmt.Errorf("%s (%s) is on the public internet, and this creates hundreds of operations there: "+
					"give -i-may-test-this if you are allowed to", u.Hostname(), a)
			}
		}
	}
	return nil
}

// isNear reports whether the address is on this machine or on a private network.
func isNear(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsUnspecified()
}

// systemResolver asks the system.
func systemResolver(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, network, host)
}
