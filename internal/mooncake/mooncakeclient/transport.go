package mooncakeclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// A Transport makes clients speak as Mooncake's own of one generation.
type Transport struct {
	// Connect opens a connection to an address. By default it is Dial with a timeout
	// of 2 s. It may be changed before the first call.
	Connect func(ctx context.Context, address string, g *mooncake.Generation) (*Conn, error)

	generation *mooncake.Generation
}

// NewTransport returns the transport of a generation, or of the newest one if no
// name is given.
func NewTransport(generation string) (*Transport, error) {
	names := mooncake.Names()
	g, ok := mooncake.NewGeneration(cmp.Or(generation, names[0]))
	if !ok {
		return nil, fmt.Errorf("there is no generation %q of Mooncake's protocol; known are %s", generation, strings.Join(names, ", "))
	}
	return &Transport{dialOnce, g}, nil
}

// Generation returns the generation that clients speak.
func (t *Transport) Generation() *mooncake.Generation { return t.generation }

// RequestIDs returns false: the protocol has no request ids.
func (t *Transport) RequestIDs() bool { return false }

// LeaderKey is where Mooncake's clients look for their master: its address.
func (t *Transport) LeaderKey(config client.Config) string { return mooncake.ViewKey(config.ClusterID) }

// ParseLeader reads that address; its revision is the version of the view.
func (t *Transport) ParseLeader(value []byte, revision int64) (address string, term uint64, err error) {
	if _, _, err := net.SplitHostPort(string(value)); err != nil {
		return "", 0, fmt.Errorf("the master's view names no host:port: %w", err)
	}
	return string(value), uint64(revision), nil
}

// Dial returns a connection that connects when it is called.
func (t *Transport) Dial(address string, config client.Config) (client.Conn, error) {
	return t.newCaller(address, config), nil
}

// A caller makes the calls of the contract at one node. It is a client.Conn.
type caller struct {
	*Transport
	address string
	// clusterID stands in the headers of answers: it is not in the messages.
	clusterID string
	client    uuid.UUID // who pings when the master's view is asked for
	pool      *pool
}

// newCaller takes from a client's configuration who calls, and what a node takes
// at most: larger requests would cost a connection.
func (t *Transport) newCaller(address string, config client.Config) *caller {
	return &caller{t, address, config.ClusterID, config.ClientID, newPool(t, address, config.MaxMessageBytes)}
}

func (c *caller) Close() error {
	c.pool.close()
	return nil
}

// ResetConnectBackoff does nothing: each call that needs a connection dials.
func (c *caller) ResetConnectBackoff() {}

func (c *caller) Invoke(ctx context.Context, name string, req, resp any, options ...grpc.CallOption) error {
	a := &attempt{Context: ctx, caller: c}
	err := needsGRPC(name)
	if m, ok := methods[name]; ok {
		if err = a.readArgs(req); err == nil {
			err = m(a, req, resp)
		}
	}
	if a.sent {
		for _, o := range options {
			if p, ok := o.(grpc.PeerCallOption); ok {
				*p.PeerAddr = peer.Peer{Addr: address(c.address)}
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

func needsGRPC(what string) error {
	return errs.New(errs.NotSupported, path.Base(what), "Mooncake's protocol does not have this; it needs gRPC")
}

func (c *caller) lacksField(setting string) error {
	return errs.New(errs.NotSupported, "", "the messages of Mooncake's generation %s have no field for %s: leave it out, or use gRPC or a newer generation",
		c.generation.Name, setting)
}

// An attempt is one call in progress.
type attempt struct {
	context.Context
	*caller
	args mooncake.Args
	sent bool   // the master may have got it
	view uint64 // that the master has named, 0 if it has not
}

// A refusal is the number with which a master has answered instead of a result.
type refusal int32

func (n refusal) Error() string { return fmt.Sprintf("the master answers %d", int32(n)) }

// kindOf returns what a number means; one that is not known is a defect.
func kindOf(number int32) errs.Kind {
	kind, _ := errs.FromNumber(number)
	return kind
}

func do[R any](a *attempt, call mooncake.Call[R], result *R) error {
	if call.Name == "" {
		return errs.New(errs.NotSupported, "", "Mooncake's clients of generation %s do not have this call", a.generation.Name)
	}
	c, err := a.pool.get(a)
	if err != nil {
		return err
	}
	sent, err := Do(a, c, call, &a.args, result)
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
		return rpcerr.Status(said, path.Base(name), rpcerr.Source{ClusterID: a.clusterID, NodeID: a.address}).Err()
	case errors.As(err, &wrong):
		return rpcerr.Status(err, path.Base(name), rpcerr.Source{}).Err()
	case errors.As(err, &refused) && refused.Code == coro.CodeException:
		return status.Error(codes.Unavailable, err.Error()) // its outcome is open
	case errors.As(err, &refused):
		return status.Errorf(codes.Unimplemented, "%v: the master at %s does not speak Mooncake's generation %s, or takes no such call over it (--mooncake-no-orders, --roles)", err, a.address, a.generation.Name)
	case errors.As(err, &unreadable):
		return status.Errorf(codes.DataLoss, "%v; is the master at %s of Mooncake's generation %s?", err, a.address, a.generation.Name)
	case a.Err() != nil:
		return status.FromContextError(a.Err()).Err()
	default:
		return status.Error(codes.Unavailable, err.Error())
	}
}

func (a *attempt) setHeader(resp any) {
	m := resp.(proto.Message).ProtoReflect()
	h := &pb.ResponseHeader{Term: a.view, ClusterId: a.clusterID, NodeId: a.address}
	m.Set(m.Descriptor().Fields().ByName("header"), protoreflect.ValueOfMessage(h.ProtoReflect()))
}
