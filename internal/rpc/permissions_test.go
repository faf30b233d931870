package rpc

import (
	"path"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/understudy-store/understudy/api/understudy/v1"

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
				t.Errorf("%s: got no permission, want one that lets somebody call it", method)
			}
			delete(all, method)
		}
	}
	for method := range all {
		t.Errorf("%s: got a permission, want none: it is no call", method)
	}
}

// A viewer may make the calls of AdminService that are without side effects by their protos,
// and no other call. So a new call is decided with its idempotency_level.
func TestViewersPermissions(t *testing.T) {
	few := []string{pb.AdminService_Backup_FullMethodName, pb.AdminService_Digest_FullMethodName, pb.AdminService_DumpRanges_FullMethodName} // at once
	admin := pb.File_understudy_v1_admin_proto.Services().ByName("AdminService").Methods()
	for method, p := range permissions() {
		want := false
		if strings.HasPrefix(method, "/"+pb.AdminService_ServiceDesc.ServiceName+"/") {
			want = harmless(admin.ByName(protoreflect.Name(path.Base(method)))) && !slices.Contains(few, method)
		}
		if got := p.roles&access.Viewer != 0; got != want || got && p.order {
			t.Errorf("%s: a viewer may make it: %v, want %v, and no order", method, got, want)
		}
	}
}
