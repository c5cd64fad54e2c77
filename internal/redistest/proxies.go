package redistest

import (
	"context"
	"net"
	"testing"
)

// Proxies has a proxy in front of each of several servers, for a client that learns its addresses from a Cluster node.
//
//	proxies := redistest.NewProxies(t, cluster.Servers()...)
//	client := cluster.Client(t, func(o *redis.ClusterOptions) { o.Dialer = proxies.Dial })
//	lost := proxies[cluster.Owner(t, "key")].DropReply(redistest.Named("SET"))
//
// Such a client also sends commands by itself, which the proxies count and [Any] matches: CLUSTER and COMMAND to any
// node, and ASKING before a command that was answered with ASK.
type Proxies map[*Server]*Proxy

// NewProxies starts a proxy for each server, as [NewProxy] does.
func NewProxies(t testing.TB, servers ...*Server) Proxies {
	t.Helper()
	p := Proxies{}
	for _, s := range servers {
		p[s] = NewProxy(t, s.addr)
	}
	return p
}

// Dial is a Dialer for a client's options. It dials the proxy of a server that has one, and any other address itself.
func (p Proxies) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for _, proxy := range p {
		if proxy.target == addr {
			addr = proxy.Addr()
			break
		}
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}
