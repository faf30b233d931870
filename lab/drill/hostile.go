package drill

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

const (
	hostileFor   = 10 * time.Second
	hostileP99   = time.Second // of the clients' calls meanwhile
	hostileBytes = 512 << 20   // that the primary may take more than before
	longKeys     = 4000
	longKeyBytes = 4 << 10
)

// hostilePeers has peers take all that they can of the primary: it stays primary,
// answers its clients, and keeps its memory. Then one takes its share of all.
func hostilePeers(ctx context.Context, e *Env) {
	if len(e.notices) == 0 || slices.Contains(e.notices, "memory") {
		e.underLoad(ctx)
	}
	if !e.noticed() {
		e.greed(ctx)
	}
}

// underLoad has peers cost the primary all the processor and memory that they can.
func (e *Env) underLoad(ctx context.Context) {
	e.episode(ctx, episode{work: &work{exact: true}}, func(ctx context.Context) {
		p := e.working(ctx)
		b := e.newBulk()
		defer b.Close()
		for from := 0; from < longKeys; from += bulkBatch {
			var keys []string
			for i := range bulkBatch {
				keys = append(keys, fmt.Sprintf("%s/%d", strings.Repeat("x", longKeyBytes), from+i))
			}
			do(b.putAll(ctx, keys, bulkSize, client.PutConfig{}))
		}
		before := must(must(procfs.NewProc(p.primary.PID)).NewStatus()).VmRSS
		for _, a := range attacks() {
			from := e.load.Now()
			e.underAttack(ctx, p.primary.RPC, a)
			p99 := e.load.p99(from, e.load.Now())
			e.result.check("clients are answered", p99 > 0 && p99 <= hostileP99, "under %s the p99 of the clients' calls was %v, at most %v is expected", a.what, p99, hostileP99)
			most := must(must(procfs.NewProc(p.primary.PID)).NewStatus()).VmHWM
			e.result.check("memory", most <= before+hostileBytes, "the primary took %d MiB at most under %s, %d before; %d more are expected at most", most>>20, a.what, before>>20, hostileBytes>>20)
			e.did("%s: p99 %v, %d MiB at most", a.what, p99, most>>20)
			e.result.Rounds++
		}
		_, term := e.primary(ctx, 0)
		e.result.check("no failover", term == p.term, "term %d, before %d", term, p.term)
		e.allLive()
		e.bounded()
	})
}

// An attack is what one peer does to an address, until the context ends at most. It is
// refused, sooner or later.
type attack struct {
	what string
	run  func(ctx context.Context, address string)
}

func attacks() []attack {
	return []attack{
		{"unfinished requests", leaveUnfinished()}, {"unread answers", readNothing},
		{"patterns", usePatterns}, {"waits", waitForNothing},
	}
}

// underAttack has many peers attack a node for a while.
func (e *Env) underAttack(ctx context.Context, address string, a attack) {
	const peers = 100
	lasts := hostileFor
	if e.Short {
		lasts /= 2
	}
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var g errgroup.Group
	for range peers {
		g.Go(func() error {
			a.run(ctx, address)
			<-ctx.Done()
			return nil
		})
	}
	do(g.Wait())
}

// usePatterns looks for what no key has, the slow way.
func usePatterns(ctx context.Context, address string) {
	onConn(address, func(c *grpc.ClientConn) {
		_, _ = pb.NewAdminServiceClient(c).ListKeys(ctx, &pb.ListKeysRequest{Regex: "(x+x+)+y"})
	})
}

// waitForNothing waits for a sequence that never comes, often at once.
func waitForNothing(ctx context.Context, address string) {
	onConn(address, func(c *grpc.ClientConn) {
		var g errgroup.Group
		for range 200 {
			g.Go(func() error {
				_, err := pb.NewAdminServiceClient(c).Digest(ctx, &pb.DigestRequest{Sequence: 1 << 40})
				return err
			})
		}
		_ = g.Wait()
	})
}

// onConn does something with a gRPC connection.
func onConn(address string, do func(*grpc.ClientConn)) {
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return
	}
	defer c.Close()
	do(c)
}

// leaveUnfinished sends the largest request of Mooncake's protocol, but for one byte.
func leaveUnfinished() func(context.Context, string) {
	frame := mooncakeFrame(0, make([]byte, 16<<20))
	return func(ctx context.Context, address string) {
		onSocket(ctx, address, func(c net.Conn) {
			_, _ = c.Write(frame[:len(frame)-1])
			<-ctx.Done()
		})
	}
}

// readNothing asks for all keys and reads no answer.
func readNothing(ctx context.Context, address string) {
	g, _ := mooncake.NewGeneration(mooncake.Names()[0])
	args := mooncake.Args{Key: "x"}
	body := structpack.Pack(new(structpack.Writer), nil, g.GetReplicaListByRegex.Args, &args)
	onSocket(ctx, address, func(c net.Conn) {
		for range 10 {
			if _, err := c.Write(mooncakeFrame(g.GetReplicaListByRegex.ID, body)); err != nil {
				return
			}
		}
		<-ctx.Done()
	})
}

// onSocket does something with a connection that ends with the context.
func onSocket(ctx context.Context, address string, do func(net.Conn)) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	do(c)
}

// mooncakeFrame is a request of Mooncake's protocol.
func mooncakeFrame(function uint32, body []byte) []byte {
	frame := []byte{coro.Magic, 0, 0, 0, 0, 0, 0, 0}
	frame = binary.LittleEndian.AppendUint32(frame, function)
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(body)))
	return append(append(frame, 0, 0, 0, 0), body...)
}
