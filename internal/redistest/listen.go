package redistest

import (
	"math/rand/v2"
	"net"
	"runtime"
)

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
