// Package pgtest starts real PostgreSQL servers for tests and benchmarks. It imports no driver, so that it can be part
// of this module.
//
// PostgreSQL is taken from the PATH or from where Debian installs it, in the newest version found. It refuses to run as
// root. A process that runs as root starts it as postgres or nobody.
package pgtest
