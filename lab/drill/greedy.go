package drill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/lab/judge"
)

const (
	fewDescriptors = 2000 // of each node
	greedyAddress  = "127.0.0.2"
	idleConns      = 3000
	greedyMounts   = 300
	greedyKeys     = 8000 // of greedyKeyBytes
	greedyKeyBytes = 8 << 10
	greedyBatch    = 100
	servedWithin   = 5 * time.Second
)

// withFewDescriptors returns a script that starts a program with few file descriptors.
func (e *Env) withFewDescriptors(program string) string {
	if program == "" {
		program = must(os.Executable())
	}
	path := filepath.Join(e.dir, "few-descriptors")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec '%s' \"$@\"\n", fewDescriptors, program)
	do(os.WriteFile(path, []byte(script), 0o755))
	return path
}

// greed lets one peer take all the segments, clients, key bytes and connections that it gets.
// The primary has etcd in its process and few file descriptors. It must still serve a new
// peer.
func (e *Env) greed(ctx context.Context) {
	ep := episode{work: &work{exact: true}}
	ep.Embedded, ep.Program = !e.OwnEtcd, e.withFewDescriptors(e.program)
	// The bound on segments is lower than the number that an allocation tries.
	ep.Args = []string{"--max-clients=100", "--max-segments=100", "--max-key-bytes=32MiB"}
	e.episode(ctx, ep, func(ctx context.Context) {
		p := e.working(ctx)
		from := e.load.Now()
		greedy, end := context.WithCancel(ctx)
		defer end()
		address := p.primary.Conn.Target() // not through the proxies: all peers would have their address
		mounts, keys := takeShares(greedy, address)
		conns := takeConnections(greedy, address)
		err := e.serves(ctx)
		e.result.check("others are served", err == nil, "beside a peer that took %d segments and %d keys, and opened %d connections: %v", mounts, keys, conns, err)
		e.result.check("no failover", p.primary.Alive(), "the primary has ended; see %s", p.primary.Log)
		if e.noticed() || !p.primary.Alive() {
			return
		}
		p99 := e.load.p99(from, e.load.Now(), judge.PutStart, judge.PutEnd)
		e.result.check("puts are answered", p99 > 0 && p99 <= hostileP99, "beside a greedy peer the p99 of puts was %v, at most %v is expected", p99, hostileP99)
		e.did("a greedy peer: p99 of puts %v; it took %d segments and %d keys, and opened %d connections", p99, mounts, keys, conns)
		_, term := e.primary(ctx, 0)
		e.result.check("no failover", term == p.term, "term %d, before %d", term, p.term)
		e.result.Rounds++
		e.allLive()
	})
}

// serves lets a new client lend memory and put an object.
func (e *Env) serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, servedWithin)
	defer cancel()
	b := e.newBulk()
	defer b.Close()
	// The segment has a single byte, so no object of the recorded clients fits there.
	s := client.Segment{ID: uuid.New(), Name: "modest", Base: 1 << 40, Size: 1, Endpoint: "modest:1", Protocol: "tcp"}
	if err := b.MountSegment(ctx, s); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	if err := b.putAll(ctx, []string{"modest"}, bulkSize, client.PutConfig{}); err != nil {
		return fmt.Errorf("putting: %w", err)
	}
	return nil
}

// takeShares mounts segments under as many client ids, and puts long keys, until it is
// refused. It returns how many it got.
func takeShares(ctx context.Context, address string) (mounts, keys int) {
	c := must(grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialGreedy)))
	context.AfterFunc(ctx, func() { _ = c.Close() })
	id := ""
	for ; mounts < greedyMounts; mounts++ {
		id = uuid.NewString()
		name := fmt.Sprintf("greedy-%d", mounts)
		_, err := pb.NewClientServiceClient(c).MountSegment(ctx, &pb.MountSegmentRequest{
			ClientId: id, Segment: &pb.Segment{Id: uuid.NewString(), Name: name, Base: 1 << 40, Size: 1, Endpoint: name + ":1", Protocol: "tcp"},
		})
		if err != nil {
			break
		}
	}
	for ; keys < greedyKeys; keys += greedyBatch {
		r := &pb.BatchPutStartRequest{ClientId: id}
		for i := range greedyBatch {
			r.Items = append(r.Items, &pb.PutStartItem{Key: fmt.Sprintf("greedy/%s/%d", strings.Repeat("x", greedyKeyBytes), keys+i), Size: 1})
		}
		if a, err := pb.NewObjectServiceClient(c).BatchPutStart(ctx, r); err != nil || len(a.GetErrors()) > 0 {
			break
		}
	}
	return mounts, keys
}

// takeConnections opens gRPC connections and leaves them idle. It returns how many it
// could begin.
func takeConnections(ctx context.Context, address string) (n int) {
	for failed := 0; n < idleConns && failed < 5; n++ {
		c, err := dialGreedy(ctx, address)
		if errors.Is(err, syscall.ECONNRESET) {
			continue // the node accepted it and closed it at once, since it was one too many
		}
		if err != nil {
			failed++
			continue
		}
		context.AfterFunc(ctx, func() { _ = c.Close() })
		_, _ = c.Write([]byte(http2.ClientPreface))
		_ = http2.NewFramer(c, nil).WriteSettings()
	}
	return n
}

// dialGreedy connects from an address that nobody else uses.
func dialGreedy(ctx context.Context, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(greedyAddress)}}
	return d.DialContext(ctx, "tcp", to)
}
