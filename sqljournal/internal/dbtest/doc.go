// Package dbtest has what the tests of this module share: a real PostgreSQL and a real MariaDB or MySQL on loopback
// ports, SQLite in a file, and a TCP proxy that causes a fault at the statement that a test names.
//
// A test for every kind of database runs on all of them:
//
//	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
//		db := d.Open(t)
//		...
//	})
//
// One server serves all tests of a test binary. Each Database is a new schema in it, or a new file, and has the
// journal's table. A test about a lost or late message puts a proxy in front of the server:
//
//	d := dbtest.PostgreSQL(t)
//	proxy := dbtest.NewProxy(t, d.Server())
//	db := d.Open(t, dbtest.Through(proxy))
//	late := proxy.Delay(dbtest.Statement("commit"))
//	... // the client sees an error, and the server has not seen the COMMIT
//	late.Wait(t)
//	late.Lift() // now the server has it
//
// Packages pgtest and mysqltest start the servers. If one is not installed, its tests are left out, and [Main] prints that
// in one line. With CI=true in the environment they fail instead.
package dbtest
