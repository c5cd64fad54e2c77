package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
)

// Ports are below the range of outgoing connections (from 32768 on Linux, from 49152 elsewhere). Otherwise the kernel
// could give the port of a server that is down to a connection, and a client that dials it could connect to itself. The
// port of the Cluster bus is 10000 higher. It is below that range too, and is never the port of another server.
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

// ListenAlone listens at a loopback address of its own, where the system allows it (Linux). It is for servers that a test
// kills: the test's clients go on to send to the address, and at 127.0.0.1 the kernel may have given the port to a server
// of another test.
func ListenAlone() (net.Listener, error) {
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = net.IPv4(127, byte(1+rand.IntN(254)), byte(rand.IntN(256)), byte(1+rand.IntN(254))).String()
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}
