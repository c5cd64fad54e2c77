package child

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// BusOffset is added to the port of a node of a Redis Cluster for the port of its bus.
const BusOffset = 10000

// ports counts the ports given to servers of this process: no server gets the port of another one that is down.
var ports atomic.Int64

// FreePort returns a port on which nothing was listening, and nothing BusOffset above it. Both are below those that the
// kernel gives to outgoing connections, so that no connection takes them while the server restarts.
func FreePort() (int, error) {
	const first, last = 10000, 19999
	for range last - first {
		port := first + (os.Getpid()*100+int(ports.Add(1)))%(last-first+1)
		if isFree(port) && isFree(port+BusOffset) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d", first, last)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}
