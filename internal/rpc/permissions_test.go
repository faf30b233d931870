package rpc

import (
	"testing"

	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/service"
)

// Every call of every service has a permission, and each permission is of a call.
func TestPermissions(t *testing.T) {
	s := NewServer(Config{Gate: service.NewGate()})
	defer s.grpc.Stop()
	all := permissions()
	for name, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			method := "/" + name + "/" + m.Name
			p, ok := all[method]
			if !ok || !p.open && p.roles == access.Nobody {
				t.Errorf("%s: nobody may call it", method)
			}
			delete(all, method)
		}
	}
	for method := range all {
		t.Errorf("%s has a permission, and is no call", method)
	}
}
