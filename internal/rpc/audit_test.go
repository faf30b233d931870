package rpc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/security/access"
)

// Orders that change nothing are logged as far as a log can take that, those that do in any
// case.
func TestIdleOrdersFillNoLog(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	idle := map[string]func() error{
		"UnmountSegment": func() error {
			_, err := n.clients.UnmountSegment(ctx, &pb.UnmountSegmentRequest{ClientId: alice, SegmentId: bob})
			return err
		},
		"RemoveByRegex": func() error {
			_, err := n.objects.RemoveByRegex(ctx, &pb.RemoveByRegexRequest{Regex: "none"})
			return err
		},
	}
	for range 150 {
		for what, order := range idle {
			if err := order(); err != nil {
				t.Fatalf("%s, which finds nothing to change: got error %v, want none", what, err)
			}
		}
	}
	n.put("a")
	if _, err := n.objects.RemoveAll(ctx, &pb.RemoveAllRequest{Force: true}); err != nil {
		t.Fatal(err)
	}
	n.put("b")
	if _, err := n.clients.UnmountSegment(ctx, &pb.UnmountSegmentRequest{ClientId: bob, SegmentId: seg1}); err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewObjectServiceClient(n.dialElsewhere()).RemoveByRegex(ctx, &pb.RemoveByRegexRequest{Regex: "nothing"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(n.logged.String(), "an order was given"); got != 53 {
		t.Errorf("%d lines, want 50 of the host, those of the removal of all and of %s, and one of another host", got, seg1)
	}
	n.logs(t, `"order":"RemoveAll"`)
	n.logs(t, seg1, `"bytes":104,`, `"owner":"`+alice+`"`) // the order of another client
	n.logs(t, `"peer":"127.0.0.2:`, "nothing")
}

// logs demands an order's line with some texts.
func (n *node) logs(t *testing.T, texts ...string) {
	t.Helper()
	for line := range strings.Lines(n.logged.String()) {
		if strings.Contains(line, "an order was given") && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return
		}
	}
	t.Errorf("the audit: got %s, want a line of an order with all of %q", n.logged.String(), texts)
}

// An order whose caller gives it up has a line all the same, if it may have changed
// something: also when its caller has had all lines that one gets for nothing.
func TestOrdersThatAreGivenUpAreLogged(t *testing.T) {
	for what, give := range map[string]func(context.Context, *node) error{
		"RemoveAll": func(ctx context.Context, n *node) error {
			_, err := n.objects.RemoveAll(ctx, &pb.RemoveAllRequest{Force: true})
			return err
		},
		"UnmountSegment": func(ctx context.Context, n *node) error {
			_, err := n.clients.UnmountSegment(ctx, &pb.UnmountSegmentRequest{ClientId: alice, SegmentId: seg1})
			return err
		},
	} {
		n := newNode(t).mount()
		n.put("a")
		for range 60 {
			if _, err := n.objects.RemoveByRegex(t.Context(), &pb.RemoveByRegexRequest{Regex: "none"}); err != nil {
				t.Fatal(err)
			}
			_, err := n.objects.RemoveByRegex(t.Context(), &pb.RemoveByRegexRequest{Regex: "("})
			wantKind(t, "a pattern that is none", err, errs.InvalidParams)
		}
		release := n.log.stall(t)
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error, 1)
		go func() { given <- give(ctx, n) }()
		<-n.log.entered
		cancel()
		if err := <-given; err == nil {
			t.Errorf("%s: got no error, want one of a call that was given up", what)
		}
		within(t, "a line of "+what, func() bool {
			return strings.Contains(n.logged.String(), `"order":"`+what+`"`)
		})
		n.logs(t, `"order":"`+what+`"`, `"result":"RPC_TIMEOUT"`)
		release()
	}
}

// Whoever got some of the state is on record, also one that does not wait for the end, and has
// had all lines before that one gets for nothing.
func TestSnapshotsThatAreCutAreLogged(t *testing.T) {
	n := newNode(t).mount()
	n.put("a")
	snapshots := pb.NewSnapshotServiceClient(n.conn)
	for range 110 {
		stream, err := snapshots.StreamSnapshot(t.Context(), &pb.StreamSnapshotRequest{ClusterId: cluster, NodeId: "nobody", Formats: []uint32{99}})
		if err == nil {
			_, err = stream.Recv()
		}
		wantKind(t, "another format", err, errs.InvalidVersion)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := snapshots.StreamSnapshot(ctx, &pb.StreamSnapshotRequest{ClusterId: cluster, NodeId: "curious", Formats: []uint32{rpc.SnapshotFormat}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.GetChunk().GetData()) > 0 {
			break
		}
	}
	cancel()
	within(t, "a line of the one that was read", func() bool {
		for line := range strings.Lines(n.logged.String()) {
			if strings.Contains(line, "an order was given") && strings.Contains(line, "curious") {
				return true
			}
		}
		return false
	})
	if got := strings.Count(n.logged.String(), "nobody"); got != 100 {
		t.Errorf("%d lines of the others, want 50 of each kind", got)
	}
}

// Who gets the state again and again is on record, and leaves the log to others.
func TestSnapshotsFillNoLog(t *testing.T) {
	n := newNode(t).mount()
	n.put("a")
	get := func(from pb.SnapshotServiceClient, id string) {
		t.Helper()
		stream, err := from.StreamSnapshot(t.Context(), &pb.StreamSnapshotRequest{ClusterId: cluster, NodeId: id, Formats: []uint32{rpc.SnapshotFormat}})
		for err == nil {
			_, err = stream.Recv()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatalf("a snapshot: got %v, want the end of the stream", err)
		}
	}
	here := pb.NewSnapshotServiceClient(n.conn)
	for range 60 {
		get(here, "greedy")
	}
	get(pb.NewSnapshotServiceClient(n.dialElsewhere()), "modest")
	for _, line := range []string{"an order begins", "an order was given", "sent a snapshot"} {
		counts := make(map[string]int)
		for l := range strings.Lines(n.logged.String()) {
			for _, id := range []string{"greedy", "modest"} {
				if strings.Contains(l, line) && strings.Contains(l, id) {
					counts[id]++
				}
			}
		}
		if counts["greedy"] != 50 || counts["modest"] != 1 {
			t.Errorf("%q is logged %d times of the first host and %d times of another one, want 50 and 1", line, counts["greedy"], counts["modest"])
		}
	}
	n.logs(t, "modest", `"left_out":10`)
}

// The lines of refused calls are shared by peers: one that is refused without end leaves lines to
// others.
func TestRefusalsAreShared(t *testing.T) {
	callers, err := access.New("", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, func(c *rpc.Config) { c.Callers = callers })
	for range 150 {
		if _, err := n.objects.RemoveAll(t.Context(), &pb.RemoveAllRequest{}); err == nil {
			t.Fatal("RemoveAll of a stranger: got no error, want it refused")
		}
	}
	if _, err := pb.NewObjectServiceClient(n.dialElsewhere()).RemoveAll(t.Context(), &pb.RemoveAllRequest{}); err == nil {
		t.Fatal("RemoveAll of a stranger on another host: got no error, want it refused")
	}
	log := n.logged.String()
	if got := strings.Count(log, "a call was refused"); got != 51 || !strings.Contains(log, `"peer":"127.0.0.2:`) {
		t.Errorf("%d lines, want 50 of one host, and that of another host", got)
	}
}
