package rpc_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
)

func TestBackup(t *testing.T) {
	n := newNode(t)
	n.admin.backup = [][]byte{[]byte("a"), bytes.Repeat([]byte("b"), 2<<20+1), []byte("c")}
	stream, err := n.ops.Backup(t.Context(), &pb.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(part.GetData()) > pb.MaxSnapshotChunkBytes || part.GetHeader().GetNodeId() != me {
			t.Fatalf("a part of %d bytes with header %v; want at most %d bytes, from %q", len(part.GetData()), part.GetHeader(), pb.MaxSnapshotChunkBytes, me)
		}
		got = append(got, part.GetData()...)
	}
	if want := bytes.Join(n.admin.backup, nil); !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want the %d that the node wrote", len(got), len(want))
	}
}

// A backup that nobody reads leaves a place to operators elsewhere.
func TestBackupsOfOneHost(t *testing.T) {
	n := newNode(t)
	n.admin.backup = [][]byte{bytes.Repeat([]byte("b"), 20<<20)}
	receive := func(ops pb.AdminServiceClient) error {
		stream, err := ops.Backup(t.Context(), &pb.BackupRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	if err := receive(n.ops); err != nil { // its first message, and no other
		t.Fatal(err)
	}
	wantKind(t, "a second one to the host", receive(n.ops), errs.Unavailable)
	if err := receive(pb.NewAdminServiceClient(n.dialElsewhere())); err != nil {
		t.Errorf("to another host: got %v, want no error", err)
	}
}

// Orders to found the journal anew that do not say of what are bounded.
func TestRefoundsAreBounded(t *testing.T) {
	n := newNode(t)
	refused := make(chan error, 5)
	for range 5 {
		stream, err := n.ops.Refound(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() { refused <- stream.RecvMsg(new(pb.RefoundResponse)) }()
	}
	if err := <-refused; !strings.Contains(err.Error(), "4 of them to your host") {
		t.Errorf("one more than a host may have: got %v, want why", err)
	}
}

// beginUpload begins to send a state file.
func beginUpload(t *testing.T, ops pb.AdminServiceClient) grpc.ClientStreamingClient[pb.RefoundRequest, pb.RefoundResponse] {
	t.Helper()
	stream, err := ops.Refound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.RefoundRequest{GiveUp: []string{"node-2"}, FromFile: true}); err != nil {
		t.Fatal(err)
	}
	return stream
}

// State files that are sent have a few places, one for each host; the place of one whose
// sender falls silent is free again soon.
func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *rpc.Config) { c.Limits.Send = 6 * time.Second })
	n.admin.uploads = make(chan struct{}, 2)
	silent := beginUpload(t, n.ops)
	<-n.admin.uploads
	err := beginUpload(t, n.ops).RecvMsg(new(pb.RefoundResponse))
	wantKind(t, "a second file from one host", err, errs.Unavailable)
	if !strings.Contains(err.Error(), "state files are being sent") {
		t.Errorf("a second file from one host: got %v, want why", err)
	}
	other := beginUpload(t, pb.NewAdminServiceClient(n.dialElsewhere()))
	<-n.admin.uploads
	if _, err := other.CloseAndRecv(); err != nil {
		t.Errorf("a file from another host: got %v, want no error", err)
	}
	err = silent.RecvMsg(new(pb.RefoundResponse))
	wantKind(t, "a file that does not come", err, errs.Unavailable)
	for free := false; !free; { // a moment after the answer
		stream := beginUpload(t, n.ops)
		_, err := stream.CloseAndRecv()
		if free = err == nil; !free {
			wantKind(t, "a file after it", err, errs.Unavailable)
		}
	}
}

func TestRefound(t *testing.T) {
	n := newNode(t)
	file := bytes.Repeat([]byte("state"), 300_000)
	for _, fromFile := range []bool{false, true} {
		stream, err := n.ops.Refound(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&pb.RefoundRequest{GiveUp: []string{"node-2"}, FromFile: fromFile}); err != nil {
			t.Fatal(err)
		}
		for rest := file; fromFile && len(rest) > 0; rest = rest[min(len(rest), pb.MaxSnapshotChunkBytes):] {
			if err := stream.Send(&pb.RefoundRequest{Data: rest[:min(len(rest), pb.MaxSnapshotChunkBytes)]}); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := stream.CloseAndRecv()
		if err != nil || resp.GetHeader().GetTerm() != term+1024 || resp.GetSequence() != 7 {
			t.Errorf("got %v, %v; want term %d and sequence 7", resp, err, term+1024)
		}
		if sent := n.admin.sent.Load(); (sent != nil) != fromFile || sent != nil && !bytes.Equal(*sent, file) {
			t.Errorf("refound from a file, %v: got a file sent to the node, %v, want it as it is, and only then", fromFile, sent != nil)
		}
	}
}

// An order that is a stream is in the audit with its request, when it begins and when it ends.
func TestAuditOfStreams(t *testing.T) {
	n := newNode(t)
	stream, err := n.ops.Refound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.RefoundRequest{GiveUp: []string{"node-2"}, FromFile: true, Data: []byte("secret")}); err != nil {
		t.Fatal(err)
	}
	said := func(what string) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for {
			for line := range strings.Lines(n.logged.String()) {
				if strings.Contains(line, what) && strings.Contains(line, `"order":"Refound"`) && strings.Contains(line, "node-2") && !strings.Contains(line, "secret") {
					return
				}
			}
			select {
			case <-deadline:
				t.Fatalf("the audit of a stream: got\n%s\nwant a line with the request, without its secret, that %s", n.logged.String(), what)
			case <-time.After(time.Millisecond):
			}
		}
	}
	said("an order begins") // while the file is awaited
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	said("an order was given")
}

// A state file may be larger than what the requests of a host may have that are not finished:
// what the node has read of it counts no more.
func TestRefoundFromALargeFile(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 16 << 20 })
	stream, err := n.ops.Refound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.RefoundRequest{GiveUp: []string{"node-2"}, FromFile: true}); err != nil {
		t.Fatal(err)
	}
	chunk := bytes.Repeat([]byte("x"), pb.MaxSnapshotChunkBytes)
	const size = 24 << 20 // of which a host may have 8 MiB
	for range size / len(chunk) {
		if err := stream.Send(&pb.RefoundRequest{Data: chunk}); err != nil {
			break // the answer says why
		}
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if sent := n.admin.sent.Load(); sent == nil || len(*sent) != size {
		t.Errorf("a file of %d bytes: got it not or in part at the node, want all of it", size)
	}
}
