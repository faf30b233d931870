package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// peers calls other nodes of the cluster over gRPC. Calls are few, so each has a
// connection of its own.
type peers struct {
	clusterID, nodeID string
	log               zerolog.Logger
	certs             *certs.Source          // nil to call others without TLS
	mayBePlain        bool                   // others may not have TLS yet
	fault             atomic.Pointer[string] // why the last snapshot could not be loaded; nil if waiting may help
}

// A peer that is silent during a call is probed after probePeerAfter, the
// shortest that gRPC allows clients, and given up probePeerTimeout later.
const (
	probePeerAfter   = 10 * time.Second
	probePeerTimeout = 5 * time.Second
)

func (p *peers) dial(address string) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: probePeerAfter, Timeout: probePeerTimeout})}
	switch {
	case p.certs == nil:
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	case p.mayBePlain:
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(p.eitherTo(address)))
	default:
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(p.certs.Client())))
	}
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, fmt.Errorf("peer %s: %w", address, err)
	}
	return conn, nil
}

// eitherTo returns a dialer that gRPC calls with the addresses to which a node's name
// resolves. The certificate is checked against the name.
func (p *peers) eitherTo(name string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(name)
		if err != nil {
			return nil, err
		}
		return p.dialEither(ctx, host, address)
	}
}

// dialEither connects to a node over TLS, or without it if the node does not speak it.
// Whoever speaks TLS must have the right certificate.
func (p *peers) dialEither(ctx context.Context, host, address string) (net.Conn, error) {
	var d net.Dialer
	plain, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	config := p.certs.Client()
	config.ServerName, config.NextProtos = host, []string{http2.NextProtoTLS}
	secret := tls.Client(plain, config)
	if err = secret.HandshakeContext(ctx); err == nil {
		return secret, nil
	}
	_ = plain.Close()
	if header := (tls.RecordHeaderError{}); !errors.As(err, &header) && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		return nil, err
	}
	return d.DialContext(ctx, "tcp", address)
}

// Fetch streams a snapshot from the primary. From a primary of an older version, the
// position that it returns has only a term and a sequence.
func (p *peers) Fetch(ctx context.Context, address string, add func(part []byte) error) (journal.Cursor, error) {
	info, err := p.fetch(ctx, address, add)
	p.note(err)
	if err != nil {
		return journal.Cursor{}, err
	}
	if len(info.Head) == 0 {
		return journal.Cursor{Head: journal.Head{Term: info.Term, Seq: info.Start}, Revision: info.Revision}, nil
	}
	head, err := journal.DecodeHead([]byte(info.Head))
	if err != nil {
		return journal.Cursor{}, fmt.Errorf("snapshot from %s: %w", address, err)
	}
	return journal.NewCursor(head, info.Revision, info.Head), nil
}

func (p *peers) fetch(ctx context.Context, address string, add func(part []byte) error) (rpc.SnapshotInfo, error) {
	conn, err := p.dial(address)
	if err != nil {
		return rpc.SnapshotInfo{}, err
	}
	defer func() { _ = conn.Close() }()
	info, err := rpc.FetchSnapshot(ctx, conn, rpc.SnapshotRequest{ClusterID: p.clusterID, NodeID: p.nodeID}, add)
	if err != nil {
		return rpc.SnapshotInfo{}, noSnapshot{err, address}
	}
	return info, nil
}

// A noSnapshot is why no snapshot came from an address.
type noSnapshot struct {
	error
	address string
}

func (e noSnapshot) Unwrap() error { return e.error }

func (e noSnapshot) Error() string {
	if rpcerr.Unanswered(e.error) {
		return fmt.Sprintf("no snapshot comes from %s, where the primary should be: %s; see that it runs, and its --advertise-address",
			e.address, rpcerr.Cause(e.address, e.error))
	}
	return fmt.Sprintf("no snapshot from %s: %v", e.address, e.error)
}

// note keeps a fault that only an operator can mend, such as a primary of another
// cluster or version, and logs it when it is new.
func (p *peers) note(err error) {
	switch errs.KindOf(err) {
	case errs.InvalidParams, errs.InvalidVersion:
	default:
		p.fault.Store(nil)
		return
	}
	text := err.Error()
	if old := p.fault.Swap(&text); old == nil || *old != text {
		p.log.Warn().Err(err).Msg("no snapshot can be loaded, so this node cannot take over")
	}
}

// warnings returns the fault that note has kept.
func (p *peers) warnings() []string {
	if text := p.fault.Load(); text != nil {
		return []string{"no snapshot can be loaded: " + *text}
	}
	return nil
}

// ask calls a node, which must be of this cluster, and returns its answer.
func ask[R interface{ GetHeader() *pb.ResponseHeader }](p *peers, address string, call func(pb.AdminServiceClient) (R, error)) (resp R, err error) {
	conn, err := p.dial(address)
	if err != nil {
		return resp, err
	}
	defer func() { _ = conn.Close() }()
	if resp, err = call(pb.NewAdminServiceClient(conn)); err != nil {
		return resp, fmt.Errorf("peer %s: %w", address, rpcerr.Plain(err))
	}
	if h := resp.GetHeader(); h.GetClusterId() != p.clusterID {
		return resp, fmt.Errorf("peer %s: node %q belongs to cluster %q, not to %q", address, h.GetNodeId(), h.GetClusterId(), p.clusterID)
	}
	return resp, nil
}

// Standing asks a node what it holds.
func (p *peers) Standing(ctx context.Context, address string) (promote.Standing, error) {
	st, err := ask(p, address, func(c pb.AdminServiceClient) (*pb.StatusResponse, error) { return c.Status(ctx, &pb.StatusRequest{}) })
	if e, from := rpcerr.Parse(err); e != nil && e.Kind == errs.NotLeader && from.ClusterID == p.clusterID {
		return promote.Standing{}, &promote.StartingError{NodeID: from.NodeID, Why: e.Detail}
	}
	if err != nil {
		return promote.Standing{}, err
	}
	s := promote.Standing{
		ID: st.GetNode().GetNodeId(), History: journal.History(st.GetJournal().GetHistory()), Complete: st.GetJournal().GetComplete(), Restored: st.GetJournal().GetRestored(),
		Forked:   st.GetJournal().GetForked(),
		Lapsed:   st.GetJournal().GetLapsed(),
		Unread:   st.GetJournal().GetUnread(),
		Position: metadata.Position{Seq: metadata.Seq(st.GetState().GetSequence()), Term: metadata.Term(st.GetState().GetTerm())},
	}
	for role, message := range roles {
		if message == st.GetNode().GetRole() {
			s.Role = role
		}
	}
	return s, nil
}

func (p *peers) WaitApplied(ctx context.Context, node promote.NodeInfo, seq metadata.Seq) error {
	resp, err := ask(p, node.RPC, func(c pb.AdminServiceClient) (*pb.DigestResponse, error) {
		return c.Digest(ctx, &pb.DigestRequest{Sequence: uint64(seq)}, grpc.WaitForReady(true))
	})
	if id := resp.GetHeader().GetNodeId(); err == nil && id != node.ID {
		return fmt.Errorf("peer %s: node %q answers there, not %q: give each node its own --advertise-address", node.RPC, id, node.ID)
	}
	return err
}
