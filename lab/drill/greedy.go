package drill

import (
	"context"
	"encoding/json"
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
)

const (
	fewDescriptors = 2000 // of each node
	greedyAddress  = "127.0.0.2"
	idleConns      = 3000
	greedyMounts   = 300
	greedySegments = 100  // that all peers may mount
	greedyKeys     = 8000 // of greedyKeyBytes
	greedyKeyBytes = 8 << 10
	greedyBatch    = 100
	servedWithin   = 5 * time.Second
	greedyPeer     = "a greedy peer"
	greedyFor      = time.Minute // at most
	longNameBytes  = 1 << 10     // of each of the four names of a segment, the most that there may be
	shareOfNames   = 256         // bytes of names that one peer has for each segment that there may be
	longNamed      = 256         // segments that one call mounts
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
	ep.Args = []string{"--max-clients=100", fmt.Sprintf("--max-segments=%d", greedySegments), "--max-key-bytes=32MiB"}
	e.episode(ctx, ep, func(ctx context.Context) {
		p := e.working(ctx)
		forgetPeak(p.primary)
		calm, from := rss(p.primary), e.load.Now()
		a := e.attack(ctx, direct(p.primary), greedyPeer, greedyFor)
		defer a.end()
		var got haul
		a.report(&got)
		err := e.serves(ctx)
		e.result.check("others are served", err == nil, "beside a peer that took %d segments and %d keys, and opened %d connections: %v", got.Segments, got.Keys, got.Conns, err)
		e.result.check("no failover", p.primary.Alive(), "the primary has ended; see %s", p.primary.Log)
		e.result.check("names are shared", got.Names <= shareOfNames*greedySegments, "a peer took %d bytes for the names of its segments, at most %d are expected", got.Names, shareOfNames*greedySegments)
		if e.noticed() || !p.primary.Alive() {
			return
		}
		e.bears(p.primary, fmt.Sprintf("%s with %d segments, %d keys and %d connections", greedyPeer, got.Segments, got.Keys, got.Conns), from, e.load.Now(), calm)
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

// A haul is what a greedy peer got.
type haul struct {
	Segments, Keys, Conns int
	Names                 int // bytes of names of the segments
}

// takeAll takes all that it gets, and reports how much that is.
func takeAll(ctx context.Context, address string) {
	c := greedyConn(address)
	defer c.Close()
	var got haul
	got.mount(ctx, c, longNameBytes)
	id := got.mount(ctx, c, 0)
	got.put(ctx, c, id)
	got.Conns = takeConnections(ctx, address)
	_ = json.NewEncoder(os.Stdout).Encode(got)
	<-ctx.Done()
}

// mount mounts segments under as many client ids, with names of at least so many bytes, until
// it is refused. It returns the last client's id.
func (h *haul) mount(ctx context.Context, c *grpc.ClientConn, long int) (id string) {
	for ; h.Segments < greedyMounts; h.Segments++ {
		id = uuid.NewString()
		s := namedSegment(fmt.Sprint(h.Segments), long)
		if _, err := pb.NewClientServiceClient(c).MountSegment(ctx, &pb.MountSegmentRequest{ClientId: id, Segment: s}); err != nil {
			break
		}
		h.Names += len(s.GetName()) + len(s.GetEndpoint()) + len(s.GetProtocol()) + len(s.GetHostId())
	}
	return id
}

// put puts long keys, until it is refused.
func (h *haul) put(ctx context.Context, c *grpc.ClientConn, id string) {
	for ; h.Keys < greedyKeys; h.Keys += greedyBatch {
		r := &pb.BatchPutStartRequest{ClientId: id}
		for i := range greedyBatch {
			r.Items = append(r.Items, &pb.PutStartItem{Key: fmt.Sprintf("greedy/%s/%d", strings.Repeat("x", greedyKeyBytes), h.Keys+i), Size: 1})
		}
		if a, err := pb.NewObjectServiceClient(c).BatchPutStart(ctx, r); err != nil || len(a.GetErrors()) > 0 {
			break
		}
	}
}

// namedSegment is a segment of one byte, with names of at least so many bytes. All have the
// same name: a put looks at few names of full segments, and would miss the others.
func namedSegment(endpoint string, long int) *pb.Segment {
	return &pb.Segment{
		Id: uuid.NewString(), Name: lengthen("g", long), Base: 1 << 40, Size: 1,
		Endpoint: lengthen(endpoint, long), Protocol: lengthen("tcp", long), HostId: lengthen("", long),
	}
}

func lengthen(name string, long int) string {
	return name + strings.Repeat("x", max(0, long-len(name)))
}

// mountLongNames mounts segments with names as long as they may be, until it is refused.
func mountLongNames(ctx context.Context, address string) {
	c := greedyConn(address)
	defer c.Close()
	id := uuid.NewString()
	for err := error(nil); err == nil; {
		r := &pb.ReMountSegmentRequest{ClientId: id}
		for range longNamed {
			r.Segments = append(r.Segments, namedSegment(uuid.NewString(), longNameBytes))
		}
		_, err = pb.NewClientServiceClient(c).ReMountSegment(ctx, r)
	}
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

// greedyConn is a connection of gRPC from the greedy peer's address.
func greedyConn(address string) *grpc.ClientConn {
	return must(grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialGreedy)))
}

// dialGreedy connects from an address that nobody else uses.
func dialGreedy(ctx context.Context, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(greedyAddress)}}
	return d.DialContext(ctx, "tcp", to)
}
