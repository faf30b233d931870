package rpcerr_test

import (
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// FuzzParse reads any status: there is an error, with a kind that is known.
func FuzzParse(f *testing.F) {
	for _, err := range []error{errs.New(errs.NotLeader, "Get", "x"), errs.New(errs.Internal, "", "y"), errs.ObjectNotFound} {
		b, e := proto.Marshal(rpcerr.Status(err, "Get", rpcerr.Source{ClusterID: "c", NodeID: "n", Term: 3, Leader: "a:1"}).Proto())
		if e != nil {
			f.Fatal(e)
		}
		f.Add(b)
	}
	f.Add([]byte("\x08\x0e\x12\x01x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s spb.Status
		_ = (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &s)
		err := status.ErrorProto(&s)
		if err == nil {
			return
		}
		e, _ := rpcerr.Parse(err)
		if e == nil || e.Kind == errs.OK || e.Error() == "" {
			t.Fatalf("status %x: got %v, want an error of a known kind, with a text", b, e)
		}
		_ = rpcerr.Plain(err)
		var item pb.ItemError
		if proto.Unmarshal(b, &item) == nil {
			if e := rpcerr.Item(&item, "Get"); e == nil || e.Kind == errs.OK {
				t.Fatalf("an item that failed, %x: got %v, want an error of a known kind", b, e)
			}
		}
	})
}
