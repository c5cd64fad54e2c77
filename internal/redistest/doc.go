// Package redistest is what the tests of this module share: real redis-server
// processes on loopback ports, miniredis behind the same interface, and a TCP
// proxy that brings a fault about at the very command a test names.
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
// Where redis-server is not on the PATH, tests that need it are skipped; with
// CI=true in the environment they fail. [Main] says so in one line.
package redistest
