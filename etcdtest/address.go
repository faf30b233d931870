package etcdtest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// UnusedAddress returns an address of loopback that nobody else gets while a member is
// down: its port is below those that the kernel gives out.
func UnusedAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
}
