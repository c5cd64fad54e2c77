package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports come from below the range that the kernel hands to outgoing
// connections (from 32768 on Linux, from 49152 elsewhere). A port out of that
// range could go to somebody's connection while its server is down, and a
// client that dials it meanwhile can end up connected to itself. The Cluster
// bus, 10000 above, stays below that range too.
const (
	firstPort = 10000
	lastPort  = 21999
)

// freePort returns a port on which nobody listened a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatalf("redistest: no free port between %d and %d", firstPort, lastPort)
	return 0
}
