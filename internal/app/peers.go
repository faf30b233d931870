package app

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// peers reaches other nodes of the cluster over gRPC. Calls are few, so each
// has a connection of its own.
type peers struct{ clusterID, nodeID string }

func (p *peers) dial(address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("peer %s: %w", address, err)
	}
	return conn, nil
}

// Fetch streams a snapshot from the primary.
func (p *peers) Fetch(ctx context.Context, address string, add func(part []byte) error) (journal.Position, error) {
	conn, err := p.dial(address)
	if err != nil {
		return journal.Position{}, err
	}
	defer func() { _ = conn.Close() }()
	info, err := rpc.FetchSnapshot(ctx, conn, rpc.SnapshotRequest{ClusterID: p.clusterID, NodeID: p.nodeID}, add)
	if err != nil {
		return journal.Position{}, fmt.Errorf("snapshot from %s: %w", address, err)
	}
	return journal.Position{Head: journal.Head{Term: info.Term, Seq: info.Start}, Revision: info.Revision}, nil
}

// WaitApplied waits until a node has applied a sequence.
func (p *peers) WaitApplied(ctx context.Context, address string, seq metadata.Seq) error {
	conn, err := p.dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = pb.NewAdminServiceClient(conn).Digest(ctx, &pb.DigestRequest{Sequence: uint64(seq)}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("peer %s: %w", address, err)
	}
	return nil
}
