package child

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// ports counts the ports given to servers of this process: no server gets the port of another one that is down.
var ports atomic.Int64

// FreePort returns a port on which nothing was listening. It is below those that the kernel gives to outgoing
// connections, so that no connection takes it while the server restarts.
func FreePort() (int, error) {
	const first, last = 20000, 31999
	for range last - first {
		port := first + (os.Getpid()*100+int(ports.Add(1)))%(last-first+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d", first, last)
}
