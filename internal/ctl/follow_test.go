package ctl

import (
	"context"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
	"github.com/understudy-store/understudy/lab/waittest"
)

// followed waits until the events that are followed tell of a put.
func followed(t *testing.T, follow *clitest.Background, key string) {
	t.Helper()
	attempt := 0
	clitest.Eventually(t, "the put of "+key+" is followed", func() bool {
		attempt++
		run(t, "put", key+strconv.Itoa(attempt), "--size=1").Want(t, cli.StatusOK)
		return strings.Contains(follow.Out.String(), `"`+key)
	})
}

// timeless returns lines of events without their wall times, which are derived each time.
func timeless(text string) []string {
	return strings.Split(strings.TrimSpace(regexp.MustCompile(`"wall_time.*?,`).ReplaceAllString(text, "")), "\n")
}

// The events go on when their node has died: every one of them, and once.
func testFollowed(t *testing.T, follow *clitest.Background) {
	followed(t, follow, "after")
	if end := follow.Interrupt(); end.Status != cli.StatusOK || strings.Count(follow.Err.String(), "looking for a node that goes on") != 1 {
		t.Errorf("following ended with %d: %s; want 0, with one search for another node", end.Status, follow.Err.String())
	}
	lines := timeless(follow.Out.String())
	first := clitest.Decode[eventResult](t, clitest.Outcome{Out: lines[0]})
	all := run(t, "events", "--limit=0", "-o", "json", "--from", strconv.FormatUint(first.Sequence, 10)).Want(t, cli.StatusOK)
	there := timeless(all.Out)
	for i, line := range lines {
		if i >= len(there) || line != there[i] {
			t.Fatalf("line %d of %d followed: got\n%s\nwant what etcd has, of %d:\n%s", i, len(lines), line, len(there), strings.Join(there[i:min(i+2, len(there))], "\n"))
		}
	}
}

// A lateNode leads from its second status on, and sends one event to who follows.
type lateNode struct {
	pb.UnimplementedAdminServiceServer
	asked atomic.Int32
}

func (n *lateNode) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	role := pb.Role_ROLE_FENCED
	if n.asked.Add(1) > 2 { // the command looks for all nodes, and then for the clock
		role = pb.Role_ROLE_PRIMARY
	}
	return &pb.StatusResponse{
		Header: &pb.ResponseHeader{ClusterId: pb.DefaultClusterID, NodeId: "a", Term: 1},
		Node:   &pb.Node{NodeId: "a", Role: role}, State: &pb.StateStatus{Term: 1, Sequence: 7, ClusterTimeMs: 5_000},
	}, nil
}

func (n *lateNode) Events(_ *pb.EventsRequest, out grpc.ServerStreamingServer[pb.EventsResponse]) error {
	return out.Send(&pb.EventsResponse{Term: 1, Sequence: 8, ClusterTimeMs: 5_100, Type: "REMOVE"})
}

// Where no primary could be asked for its clock when following began, one is asked when an
// event has come.
func TestFollowedFromATimeWithoutAPrimary(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterAdminServiceServer(server, new(lateNode))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	defer serving.Wait()
	defer server.Stop()
	o := run(t, "events", "--follow", "--limit=1", "-o", "json", "--address", l.Addr().String()).Want(t, cli.StatusOK)
	event := clitest.Decode[eventResult](t, o)
	if at, err := time.Parse(time.RFC3339Nano, event.Wall); err != nil || time.Since(at).Abs() > time.Minute || event.Rough {
		t.Errorf("got the wall time %q, approximate %v; want now", event.Wall, event.Rough)
	}
}

// While nobody answers it is said once that the events have stopped.
func TestFollowedStopIsSaidOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said waittest.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&said)
	f := Program(&cobra.Command{})
	f.addresses = []string{l.Addr().String()}
	ended := make(chan error, 1)
	go func() { ended <- (&follower{Flags: f, cmd: cmd, from: 1, begun: true}).follow(ctx) }()
	for range 4 { // several times: it asks once, and again, in each try
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	cancel()
	if err := <-ended; err != nil || strings.Count(said.String(), "no more events") != 1 {
		t.Errorf("it ended with %v and said:\n%s, want 1 and no error", err, said.String())
	}
}

// A node may end amid the events of a commit, or before the first one.
func TestFollowedCommitsThatComeAgain(t *testing.T) {
	e := follower{from: 7}
	next := func(sequences ...uint64) (printed []uint64) {
		e.seen = 0 // as for a new node
		for _, s := range sequences {
			if e.fresh(s) {
				printed = append(printed, s)
			}
		}
		return printed
	}
	for i, tt := range []struct{ come, want []uint64 }{
		{nil, nil},
		{[]uint64{7, 7}, []uint64{7, 7}},
		{[]uint64{7}, nil},
		{[]uint64{7, 7, 7, 8, 8}, []uint64{7, 8, 8}},
		{[]uint64{8, 8, 9}, []uint64{9}},
		{[]uint64{12}, []uint64{12}},         // etcd does not have 9 any more
		{[]uint64{13, 13}, []uint64{13, 13}}, // nor 12
	} {
		if got := next(tt.come...); !slices.Equal(got, tt.want) {
			t.Errorf("%d: of %v it prints %v, want %v", i, tt.come, got, tt.want)
		}
	}
}
