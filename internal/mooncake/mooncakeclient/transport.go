package mooncakeclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/rpcerr"
)

// Config says whom a Transport talks to, and for whom.
type Config struct {
	Address    string // host:port of a master
	Generation *mooncake.Generation
	// ClusterID stands in the headers of answers: nobody says it on the wire.
	ClusterID string
	// Client is who pings when the master's view is asked for.
	Client uuid.UUID
	// MaxRequestBytes is what the master takes at most, and by default 4 GiB - 1.
	// Larger requests are refused here: a master would close the connection.
	MaxRequestBytes int
	// AsOriginal makes a call that cannot connect try for as long as the
	// original's: four times in some 4 s.
	AsOriginal bool
}

// A Transport makes unary calls of the gRPC contract over Mooncake's protocol.
// It is a grpc.ClientConnInterface, safe for concurrent use, and connects when
// it is called.
//
// Of the call options it heeds grpc.Peer, which is set when the master may have
// got the request. Its errors are as gRPC's: statuses, with an ErrorDetail where
// the master has answered, and DataLoss where its answer cannot be read.
type Transport struct {
	Config
	pool *pool
}

// NewTransport returns a Transport. It must be closed.
func NewTransport(c Config) *Transport {
	return &Transport{c, newPool(c)}
}

// Close ends all connections, and the calls that are under way on them.
func (t *Transport) Close() error {
	t.pool.close()
	return nil
}

// ResetConnectBackoff does nothing: each call that needs a connection dials.
func (t *Transport) ResetConnectBackoff() {}

// NewStream refuses: this protocol has no streams.
func (t *Transport) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, rpcerr.Status(needsGRPC(method), method, rpcerr.Source{}).Err()
}

// Invoke makes a call of the contract.
func (t *Transport) Invoke(ctx context.Context, name string, req, resp any, opts ...grpc.CallOption) error {
	a := &attempt{Context: ctx, Transport: t}
	err := needsGRPC(name)
	if m, ok := methods[name]; ok {
		if err = a.ownTenant(req, t.Generation.Says.Tenants); err == nil {
			err = m(a, req, resp)
		}
	}
	if a.sent {
		for _, o := range opts {
			if p, ok := o.(grpc.PeerCallOption); ok {
				*p.PeerAddr = peer.Peer{Addr: address(t.Address)}
			}
		}
	}
	if err != nil {
		return a.status(name, err)
	}
	a.setHeader(resp)
	return nil
}

// address is a host:port as net has it.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

var _ net.Addr = address("")

// needsGRPC is the error of what Mooncake's protocol does not have.
func needsGRPC(what string) error {
	return errs.New(errs.NotSupported, path.Base(what), "Mooncake's protocol does not have this; it needs gRPC")
}

// cannotSay is the error of a setting that would be lost on the way.
func (t *Transport) cannotSay(setting string) error {
	return errs.New(errs.NotSupported, "", "Mooncake's clients of generation %s cannot say %s: leave it out, or use gRPC or a newer generation",
		t.Generation.Name, setting)
}

// An attempt is one call under way.
type attempt struct {
	context.Context
	*Transport
	sent bool   // the master may have got it
	view uint64 // that the master has named, 0 if it has not
}

// A refusal is the number with which a master has answered instead of a result.
type refusal int32

func (n refusal) Error() string { return fmt.Sprintf("the master answers %d", int32(n)) }

// failed returns the error of a result, nil if it is a value.
func failed(number int32) error {
	if number == 0 {
		return nil
	}
	return refusal(number)
}

// kindOf returns what a number means; one that is not known is a defect.
func kindOf(number int32) errs.Kind {
	kind, _ := errs.FromNumber(number)
	return kind
}

// do makes one call of Mooncake's.
func do[A, R any](a *attempt, call mooncake.Call[A, R], args *A, result *R) error {
	if call.Name == "" {
		return errs.New(errs.NotSupported, "", "Mooncake's clients of generation %s do not have this call", a.Generation.Name)
	}
	c, err := a.pool.get(a)
	if err != nil {
		return err
	}
	sent, err := Do(a, c, call, args, result)
	a.sent = a.sent || sent
	var large *coro.TooLargeError
	var unreadable *UnreadableError
	switch {
	case errors.As(err, &large):
		a.pool.put(c)
		return errs.New(errs.InvalidParams, "", "the request has %d bytes, at most %d are possible; split it", large.Bytes, large.Most)
	case err == nil || errors.As(err, &unreadable):
		a.pool.put(c)
	default:
		a.pool.drop(c)
	}
	return err
}

// status is what gRPC would report.
func (a *attempt) status(name string, err error) error {
	var number refusal
	var refused *coro.Error
	var unreadable *UnreadableError
	var wrong *errs.Error
	switch {
	case errors.As(err, &number):
		said := error(kindOf(int32(number)))
		if kindOf(int32(number)) == errs.Internal {
			said = errs.Wrap(errs.Internal, "", err)
		}
		return rpcerr.Status(said, path.Base(name), rpcerr.Source{ClusterID: a.ClusterID, NodeID: a.Address}).Err()
	case errors.As(err, &wrong):
		return rpcerr.Status(err, path.Base(name), rpcerr.Source{}).Err()
	case errors.As(err, &refused) && refused.Code == coro.CodeException:
		return status.Error(codes.Unavailable, err.Error()) // its outcome is open
	case errors.As(err, &refused):
		return status.Errorf(codes.Unimplemented, "%v: the master at %s does not speak Mooncake's generation %s", err, a.Address, a.Generation.Name)
	case errors.As(err, &unreadable):
		return status.Errorf(codes.DataLoss, "%v; is the master at %s of Mooncake's generation %s?", err, a.Address, a.Generation.Name)
	case a.Err() != nil:
		return status.FromContextError(a.Err()).Err()
	default:
		return status.Error(codes.Unavailable, err.Error())
	}
}

// setHeader fills in the header of an answer.
func (a *attempt) setHeader(resp any) {
	m := resp.(proto.Message).ProtoReflect()
	h := &pb.ResponseHeader{Term: a.view, ClusterId: a.ClusterID, NodeId: a.Address}
	m.Set(m.Descriptor().Fields().ByName("header"), protoreflect.ValueOfMessage(h.ProtoReflect()))
}
