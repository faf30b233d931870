package ctl

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// More than 4 MiB of segments, which is what gRPC takes by default.
func TestManySegments(t *testing.T) {
	x := lone(t, "x")
	at := "--address=" + x.RPC
	conn, err := grpc.NewClient(x.RPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	long := strings.Repeat("n", 1000)
	var segments []*pb.Segment
	for i := range 1200 {
		segments = append(segments, &pb.Segment{
			Id: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Name: fmt.Sprint(long, i), Base: 1 << 32, Size: 1 << 20,
			Endpoint: fmt.Sprint(long, i), Protocol: long, HostId: long,
		})
	}
	for part := range slices.Chunk(segments, 400) {
		if _, err := pb.NewClientServiceClient(conn).ReMountSegment(t.Context(), &pb.ReMountSegmentRequest{ClientId: uuid.NewString(), Segments: part}); err != nil {
			t.Fatal(err)
		}
	}
	if list := clitest.Decode[segmentsResult](t, run(t, "segments", "-o", "json", at)); len(list.Segments) != len(segments) {
		t.Errorf("got %d segments, want %d", len(list.Segments), len(segments))
	}
	run(t, "ranges", long+"7", at).Want(t, cli.StatusOK)
	run(t, "segments", "unmount", long+"7", at).Want(t, cli.StatusOK, "unmounted "+segments[7].GetId())
	run(t, "segments", "unmount", segments[8].GetId(), at).Want(t, cli.StatusOK, "unmounted "+segments[8].GetId())
}
