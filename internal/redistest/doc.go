// Package redistest is what the tests of this module share: real redis-server
// processes on loopback ports, alone or as replicas, under Sentinel or in a
// Cluster; miniredis behind the same interface as one of them; a TCP proxy that
// brings a fault about at the very command a test names; and clients in
// processes of their own.
//
// A test that only needs Redis to behave runs on both servers:
//
//	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
//		client := b.Client(t)
//		...
//		b.Elapse(t, time.Minute) // no sleep
//	})
//
// A test about a fault takes a real server and a proxy before it:
//
//	server := redistest.Start(t)
//	proxy := redistest.NewProxy(t, server.Addr())
//	client := proxy.Client(t)
//	lost := proxy.DropReply(redistest.Named("SET"))
//	... // the client sees an error
//	lost.Wait(t) // and the server has executed the SET
//
// [StartMasters], [StartReplica], [StartSentinel] and [StartCluster] are for
// faults of more than one server. They return when all agree, and so do the
// methods that bring about a failover or wait for one. Proxies stand before such
// servers by a client's Dialer, see [Proxies]:
//
//	group := redistest.StartSentinel(t, 1)
//	proxies := redistest.NewProxies(t, group.Servers()...)
//	client := group.Client(t, func(o *redis.FailoverOptions) { o.Dialer = proxies.Dial })
//	old := group.Master(t)
//	old.Pause(t)
//	master := group.WaitForFailover(t, old)
//
// A client that is to be paused or killed is a [Program] of the test binary:
//
//	func TestMain(m *testing.M) { redistest.Main(m, redistest.Program{Name: "holder", Run: hold}) }
//
//	holder := redistest.Run(t, "holder", server.Addr())
//	holder.Line(t) // it says that it holds the lock
//	holder.Pause(t)
//
// In a testing/synctest bubble the client is a [Direct].
//
// Where redis-server is not on the PATH, tests that need it are skipped; with
// CI=true in the environment they fail. [Main] says in one line what is left out.
//
// What takes long, such as hundreds of kills, is left out or done less often: see
// [Long] and [Rounds]. ONCEGUARD_LONG=1 in the environment has all of it done.
//
// ONCEGUARD_SERVERS in the environment lists other servers to test on, by their
// paths, separated as those of PATH are. [Main] then runs all tests once for each
// of them, and every process of a run is of that server, Sentinels and Cluster
// nodes too. [Server.Since] skips a test on a server that is too old for it.
package redistest
