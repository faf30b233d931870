package client

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// What a connection does on its own.
const (
	// It is dialled again this often while calls want it.
	firstRedial = 50 * time.Millisecond
	lastRedial  = 500 * time.Millisecond
	// A dial without an answer is given up.
	dialTimeout = 2 * time.Second
	// A connection on which calls wait in silence is probed, and given up without
	// an answer. gRPC allows clients no shorter interval than 10 s, our server
	// none below 5 s. Bytes that nobody acknowledges end it after the same
	// timeout.
	probeAfter   = 10 * time.Second
	probeGiveUp  = 3 * time.Second
	idleTooLong  = time.Minute // an unused connection is closed, to be dialled again when needed
	redialGrowth = 1.6
	redialSpread = 0.2
)

// dial returns a connection to an address, which connects when it is used.
func dial(address string, messageBytes int) (*grpc.ClientConn, error) {
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytes), grpc.MaxCallSendMsgSize(messageBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: redialGrowth, Jitter: redialSpread, MaxDelay: lastRedial},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: probeAfter, Timeout: probeGiveUp}),
		grpc.WithIdleTimeout(idleTooLong),
		grpc.WithDisableServiceConfig(), // DNS must not change what is repeated
	)
}
