package redistest

import (
	"context"
	"net"
	"testing"
)

// Proxies has a proxy before each of several servers: for a client that is told
// by Sentinel, or by a Cluster node, where to connect.
//
//	proxies := redistest.NewProxies(t, cluster.Servers()...)
//	client := cluster.Client(t, func(o *redis.ClusterOptions) { o.Dialer = proxies.Dial })
//	lost := proxies[cluster.Owner(t, "key")].DropReply(redistest.Named("SET"))
//
// Such a client has commands of its own, which the proxies count and [Any]
// matches: CLUSTER and COMMAND on any node, ASKING before a command that was
// answered with ASK.
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

// Dial is a Dialer of a client's options: who dials a server that has a proxy
// is connected to that, and any other address is dialled as it is.
func (p Proxies) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	for _, proxy := range p {
		if proxy.target != addr {
			continue
		}
		conn, err := d.DialContext(ctx, network, proxy.Addr())
		if err != nil {
			return nil, err
		}
		return proxied{conn.(*net.TCPConn), proxyTarget(addr)}, nil
	}
	return d.DialContext(ctx, network, addr)
}

// proxied is a connection that seems to lead to the server. A failover client
// closes those that do not lead to the new master when it hears of one.
type proxied struct {
	*net.TCPConn
	server net.Addr
}

func (c proxied) RemoteAddr() net.Addr { return c.server }

// proxyTarget is the host:port of a server.
type proxyTarget string

func (proxyTarget) Network() string  { return "tcp" }
func (a proxyTarget) String() string { return string(a) }
