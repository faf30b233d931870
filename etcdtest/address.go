package etcdtest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// UnusedAddress returns a loopback address that nobody else gets while a member is down:
// its port is below the kernel's ephemeral ports.
func UnusedAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
}
