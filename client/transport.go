package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/understudy-store/understudy/internal/security/certs"
)

// A Transport carries calls to nodes. This package has one for gRPC; Config.Transport
// takes others, for other protocols that nodes speak.
type Transport interface {
	// Dial returns a connection to the node at an address, host:port. It does not
	// wait until that node answers. The configuration is that of the client, with
	// its defaults.
	Dial(address string, config Config) (Conn, error)
	// LeaderKey returns the key in etcd that names the primary.
	LeaderKey(config Config) string
	// ParseLeader reads the value of that key, last changed at a revision of etcd. It
	// returns where to reach the node that was elected, and a number that grows with each
	// election. The node may not serve yet.
	ParseLeader(value []byte, revision int64) (address string, term uint64, err error)
	// RequestIDs reports whether nodes see request ids. Without them, a call that nodes
	// recognize by its request id alone is not repeated once an attempt may have been
	// applied.
	RequestIDs() bool
}

// A Conn is a connection to one node, for any number of calls at once. Its
// methods are those of *grpc.ClientConn.
type Conn interface {
	// Invoke makes a call of the contract, by gRPC's name of it. The answer has a
	// header. An error is a status as gRPC has it, with an ErrorDetail if the node
	// has answered, and DataLoss if its answer cannot be read. Of the options,
	// grpc.Peer matters: it is set as soon as the node may have got the request.
	Invoke(ctx context.Context, method string, req, resp any, options ...grpc.CallOption) error
	// ResetConnectBackoff makes a connection that waits for its next attempt to
	// connect try now.
	ResetConnectBackoff()
	// Close ends the connection, and the calls under way.
	Close() error
}

// What a connection does on its own.
const (
	// The pauses between attempts to dial it, while calls want it.
	firstRedial = 50 * time.Millisecond
	lastRedial  = 500 * time.Millisecond
	// How long a dial may go without an answer.
	dialTimeout = 2 * time.Second
	// After probeAfter without anything received, a connection with calls is probed, and
	// given up if the probe has no answer within probeGiveUp. gRPC allows clients no
	// shorter interval than 10 s, our server none below 5 s. Bytes that nobody
	// acknowledges end it after the same timeout. While calls wait, the finder notices
	// sooner (mostMisses).
	probeAfter   = 10 * time.Second
	probeGiveUp  = 3 * time.Second
	idleTooLong  = time.Minute // an unused connection is closed, to be dialled again when needed
	redialGrowth = 1.6
	redialSpread = 0.2
)

// grpcTransport is the public contract of this project over gRPC.
type grpcTransport struct{}

func (grpcTransport) RequestIDs() bool { return true }

func (grpcTransport) Dial(address string, config Config) (Conn, error) {
	secrecy := insecure.NewCredentials()
	switch {
	case config.access.nodes != nil:
		secrecy = certs.Credentials(config.access.nodes)
	case config.TLS != nil:
		secrecy = credentials.NewTLS(config.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secrecy),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(config.MaxMessageBytes), grpc.MaxCallSendMsgSize(config.MaxMessageBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: redialGrowth, Jitter: redialSpread, MaxDelay: lastRedial},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: probeAfter, Timeout: probeGiveUp}),
		grpc.WithIdleTimeout(idleTooLong),
		grpc.WithDisableServiceConfig(), // DNS must not change what is repeated
	}
	if config.access.token != nil {
		options = append(options, grpc.WithPerRPCCredentials(config.access.token))
	}
	return grpc.NewClient(address, append(options, config.DialOptions...)...)
}

// LeaderKey is the leader key, as package journal has it.
func (grpcTransport) LeaderKey(config Config) string {
	return strings.TrimRight(config.EtcdPrefix, "/") + "/" + config.ClusterID + "/leader"
}

// ParseLeader reads what a client needs of the leader key's value.
func (grpcTransport) ParseLeader(value []byte, _ int64) (address string, term uint64, err error) {
	var node struct {
		Address string `json:"rpc_address"`
		Term    uint64 `json:"term"`
	}
	if err := json.Unmarshal(value, &node); err != nil {
		return "", 0, fmt.Errorf("the leader key cannot be read: %w", err)
	}
	if node.Address == "" || node.Term == 0 {
		return "", 0, fmt.Errorf("the leader key names no node: %s", value)
	}
	return node.Address, node.Term, nil
}
