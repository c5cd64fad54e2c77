// Package dbtest is what the tests of this module share: a real PostgreSQL server on a loopback port, SQLite in a file,
// and a TCP proxy that brings a fault about at the very statement a test names.
//
// A test that holds for every database runs on both:
//
//	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
//		db := d.Open(t)
//		...
//	})
//
// One server serves all tests of a test binary. Each Database is a schema of its own in it, or a file of its own, and
// has the journal's table. A test about a lost or late message takes a PostgreSQL and a proxy before it:
//
//	d := dbtest.PostgreSQL(t)
//	proxy := dbtest.NewProxy(t, d.Server().Addr())
//	db := d.Open(t, dbtest.Through(proxy))
//	late := proxy.Delay(dbtest.Statement("commit"))
//	... // the client sees an error, and the server has not seen the COMMIT
//	late.Wait(t)
//	late.Lift() // now it has
//
// Package pgtest starts PostgreSQL. Where it is not installed, tests run on SQLite only, and [Main] says so in one line;
// with CI=true in the environment that is a failure.
package dbtest
