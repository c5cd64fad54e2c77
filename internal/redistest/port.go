package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are below the range from which the kernel assigns ports to outgoing connections (from 32768 on Linux, from
// 49152 elsewhere). While a server is down, the kernel could assign its port to a connection, and a client that dials
// the port could even connect to itself. The port of the Cluster bus, 10000 higher, is below that range too. The two
// ranges of this package do not overlap, so no server gets the port of another server's bus.
const (
	firstPort = 10000
	lastPort  = 19999
	busOffset = 10000
)

// freePort returns a port on which no process listened a moment ago. With bus, the same holds for the port of the
// Cluster bus.
func freePort(bus bool) (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if isFree(port) && (!bus || isFree(port+busOffset)) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
