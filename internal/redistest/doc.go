// Package redistest has what the tests of this module share:
//
//   - real redis-server processes on loopback ports, alone, as replicas, under Sentinel or in a Cluster;
//   - miniredis, behind the same interface as a single server;
//   - a TCP proxy that causes a fault at a command that the test names;
//   - clients in separate processes.
//
// A test without faults runs on a real server, or on miniredis where there is none:
//
//	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
//		client := b.Client(t)
//		...
//		b.Elapse(t, time.Minute) // does not sleep
//	})
//
// A test of a fault puts a proxy in front of a real server:
//
//	server := redistest.Start(t)
//	proxy := redistest.NewProxy(t, server.Addr())
//	client := proxy.Client(t)
//	lost := proxy.DropReply(redistest.Named("SET"))
//	... // the client sees an error
//	lost.Wait(t) // and the server has executed the SET
//
// [StartMasters], [StartReplica], [StartSentinel] and [StartCluster] are for faults of more than one server. They
// return when all servers agree, and so do the methods that start a failover or wait for one. A client reaches the
// proxies of such servers by its Dialer, see [Proxies]:
//
//	group := redistest.StartSentinel(t, 1)
//	proxies := redistest.NewProxies(t, group.Servers()...)
//	client := group.Client(t, func(o *redis.FailoverOptions) { o.Dialer = proxies.Dial })
//	old := group.Master(t)
//	old.Pause(t)
//	master := group.WaitForFailover(t, old)
//
// A client that the test pauses or kills is a [Program] of the test binary:
//
//	func TestMain(m *testing.M) { redistest.Main(m, redistest.Program{Name: "holder", Run: hold}) }
//
//	holder := redistest.Run(t, "holder", server.Addr())
//	holder.Line(t) // it prints that it holds the lock
//	holder.Pause(t)
//
// A test in a testing/synctest bubble uses a [Direct] client.
//
// # Environment
//
// If redis-server is not on the PATH, the tests that need it are skipped, or fail with CI=true. [Main] prints in one
// line which tests are left out.
//
// ONCEGUARD_LONG=1 runs all long tests in full. Otherwise [Long] skips them and [Rounds] shortens them.
//
// ONCEGUARD_BACKENDS=both makes [Each] run its tests on miniredis, too.
//
// ONCEGUARD_SERVERS is the path of another server to test on, also for Sentinels and Cluster nodes. [Server.Since] skips
// a test on a server that is too old.
package redistest
