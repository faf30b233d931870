package ctl

import (
	"fmt"
	"os"
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
	run(t, "segments", "unmount", "--yes", long+"7", at).Want(t, cli.StatusOK, "unmounted "+segments[7].GetId())
	run(t, "segments", "unmount", "--yes", segments[8].GetId(), at).Want(t, cli.StatusOK, "unmounted "+segments[8].GetId())
}

// Before a segment goes it is said how many objects have a replica on it, and nothing goes
// unasked.
func testUnmountAsks(t *testing.T) {
	host := mount(t, "host-asked", "--size=1MiB", "--address", os.Getenv("UNDERSTUDY_ADDRESS"))
	for _, key := range []string{"on/1", "on/2"} {
		run(t, "put", key, "--size=4096", "--preferred-segment=host-asked").Want(t, cli.StatusOK)
	}
	const count = "2 object(s) have a replica on it"
	run(t, "segments", "unmount", "host-asked").WantMisuse(t, "this takes host-asked away, with all replicas on it", "--dry-run", "--yes")
	run(t, "segments", "unmount", "host-asked", "--dry-run").Want(t, cli.StatusOK, count, "on/1", "on/2")
	if m := clitest.Decode[matches](t, run(t, "segments", "unmount", "host-asked", "--dry-run", "-o", "json")); m.Matches != 2 || len(m.Sample) != 2 {
		t.Errorf("got %+v; want the 2 objects there", m)
	}
	answer := func(text string) clitest.Outcome {
		cmd := Command()
		cmd.SetIn(strings.NewReader(text))
		return clitest.Run(t, cmd, "segments", "unmount", "host-asked")
	}
	answer("\n").Want(t, cli.StatusFailed, count, "Unmount it? [y/N]", "nothing was unmounted")
	run(t, "get", "on/1").Want(t, cli.StatusOK)
	answer("y\n").Want(t, cli.StatusOK, count, "unmounted ", ": host-asked, 1.0 MiB of host-asked; 2 object(s) had a replica on it\n")
	run(t, "get", "on/1", "on/2").Want(t, cli.StatusFailed, "on/1: BatchGetReplicaList: OBJECT_NOT_FOUND", "on/2: BatchGetReplicaList: OBJECT_NOT_FOUND")
	endsUnmounted(t, host, "host-asked")

	empty := mount(t, "host-empty", "--size=1MiB", "--address", os.Getenv("UNDERSTUDY_ADDRESS"))
	cmd := Command()
	cmd.SetIn(strings.NewReader(""))
	if o := clitest.Run(t, cmd, "segments", "unmount", "host-empty").Want(t, cli.StatusOK, "0 object(s)", "unmounted "); strings.Contains(o.Err, "Unmount it?") {
		t.Errorf("unmount of an empty segment: got the question %s, want none: there is nothing to lose", o.Err)
	}
	endsUnmounted(t, empty, "host-empty")
}

// endsUnmounted waits until a host notices that somebody else unmounted its segment.
func endsUnmounted(t *testing.T, host *clitest.Background, name string) {
	t.Helper()
	clitest.Eventually(t, name+" notices that it was unmounted", host.Ended)
	host.Interrupt().Want(t, cli.StatusFailed)
	if says := host.Err.String(); !strings.Contains(says, "somebody else unmounted "+name) || strings.Contains(says, "mounted again") {
		t.Errorf("%s ends with %q, want that somebody else unmounted it", name, says)
	}
}
