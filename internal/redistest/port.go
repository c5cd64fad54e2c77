package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports come from below the range that the kernel hands to outgoing
// connections (from 32768 on Linux, from 49152 elsewhere). A port out of that
// range could go to somebody's connection while its server is down, and a
// client that dials it meanwhile can end up connected to itself. The Cluster
// bus, 10000 above, stays below that range too, and no server gets the port of
// another one's bus while that is down.
const (
	firstPort = 10000
	lastPort  = 19999
	busOffset = 10000
)

// freePort returns a port on which nobody listened a moment ago, nor on that of
// its Cluster bus if there is to be one.
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
