package drill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/metadata"
)

// garbage sends nonsense to every port and writes it into every record of etcd.
func garbage(ctx context.Context, e *Env) {
	e.episode(ctx, episode{work: &work{}}, func(ctx context.Context) {
		for _, n := range e.cluster.Nodes {
			if err := e.garbageAtPorts(ctx, n); err != nil {
				do(fmt.Errorf("garbage at %s: %w", n.Name, err))
			}
		}
		e.did("sent garbage to all ports")
		e.garbageInEtcd(ctx)
		e.load.answers(ctx, answersPerWait)
		e.allLive()
		e.result.Rounds++
		e.bounded()
	})
	e.episode(ctx, episode{}, e.garbageInHead)
}

// allLive demands that no node has ended by itself.
func (e *Env) allLive() {
	for _, n := range e.cluster.Nodes {
		if n.Process != nil {
			e.result.check("no crash", n.Alive() && !n.Crashed, "%s runs: %t; it ended by itself before: %t; see %s", n.Name, n.Alive(), n.Crashed, n.Log)
		}
	}
}

// maxNonsense is what is sent at once.
const maxNonsense = 32 << 20

// nonsense are messages that no port expects.
func nonsense(rng *rand.Rand) map[string][]byte {
	random := randomBytes(rng, 256<<10)
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	return map[string][]byte{
		"random":             random,
		"nothing":            nil,
		"half a preface":     preface[:10],
		"preface and random": append(bytes.Clone(preface), random...),
		"an oversized frame": append(append(bytes.Clone(preface), settings...), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1),
		"endless header":     append([]byte("GET / HTTP/1.1\r\nX: "), bytes.Repeat([]byte("x"), 4<<20)...),
		"negative length":    []byte("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
		"half a request":     []byte("GET /query_key?key="),
		// A first byte of 21 makes it a call of Mooncake's protocol.
		"random to mooncake's protocol":    append([]byte{coro.Magic}, random...),
		"a header and random":              append([]byte{coro.Magic, 0, 0, 0}, random...),
		"a header of an oversized message": append([]byte{coro.Magic, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 64)...),
		"half a header":                    {coro.Magic, 0, 0},
	}
}

func (e *Env) garbageAtPorts(ctx context.Context, n *cluster.Node) error {
	for what, bytes := range nonsense(e.rng) {
		for _, address := range []string{n.Conn.Target(), n.HTTP} {
			if err := sendBytes(ctx, strings.TrimPrefix(address, "passthrough:///"), bytes); err != nil {
				return fmt.Errorf("%s at %s: %w", what, address, err)
			}
		}
	}
	for _, method := range methods() {
		for _, size := range []int{1, 100, 64 << 10, maxNonsense} {
			if err := e.callWithGarbage(ctx, n, method, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendBytes sends bytes and hangs up when the other side does, or after a
// while. That it hangs up early is its right.
func sendBytes(ctx context.Context, address string, b []byte) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	timeout := time.AfterFunc(2*time.Second, func() { _ = c.Close() })
	defer timeout.Stop()
	_, _ = c.Write(b)
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	return nil
}

// methods are all calls that take one message.
func methods() (list []string) {
	for _, s := range []grpc.ServiceDesc{pb.ObjectService_ServiceDesc, pb.ClientService_ServiceDesc, pb.AdminService_ServiceDesc} {
		for _, m := range s.Methods {
			if m.MethodName != "Handover" && m.MethodName != "StartEmpty" && m.MethodName != "Forget" {
				list = append(list, "/"+s.ServiceName+"/"+m.MethodName)
			}
		}
	}
	return list
}

// rawCodec passes bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
func (rawCodec) Name() string                    { return "proto" }

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// callWithGarbage makes a call with random bytes for a message. Whatever is
// answered is right, as long as there is an answer.
func (e *Env) callWithGarbage(ctx context.Context, n *cluster.Node, method string, size int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	in, out := randomBytes(e.rng, size), []byte(nil)
	err := n.Conn.Invoke(ctx, method, &in, &out, grpc.ForceCodec(rawCodec{}))
	e.result.Counts["garbage_calls"]++
	if err == nil {
		e.result.Counts["garbage_calls_served"]++
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s with %d random bytes has no answer", method, size)
	}
	return nil
}

// garbageInEtcd writes nonsense to each key that is not the journal's end, and
// takes it away again where it would stay.
func (e *Env) garbageInEtcd(ctx context.Context) {
	at := must(e.cluster.Head(ctx))
	etcd, l := e.cluster.Client, e.cluster.Layout
	keys := []string{l.Node("nonsense"), l.Root + "unknown", l.Root}
	for stream := range metadata.StreamCount {
		keys = append(keys, l.Record(stream, at.Head.Seq), l.Record(stream, at.Head.Seq+1000), l.Records(stream)+"x")
	}
	for _, key := range keys {
		for _, size := range []int{0, 1, 1 << 10, 1 << 20} {
			if _, err := etcd.Put(ctx, key, string(randomBytes(e.rng, size))); err != nil {
				do(fmt.Errorf("writing %s: %w", key, err))
			}
		}
	}
	e.did("wrote garbage to %d keys in etcd", len(keys))
	leader := must(etcd.Get(ctx, l.Leader())).Kvs
	if len(leader) == 0 {
		do(errors.New("there is no leader key"))
	}
	must(etcd.Put(ctx, l.Leader(), "nonsense", clientv3.WithIgnoreLease()))
	e.load.answers(ctx, answersPerWait)
	must(etcd.Put(ctx, l.Leader(), string(leader[0].Value), clientv3.WithIgnoreLease()))
	e.did("wrote garbage to the leader key, and put it right again")
}

// garbageInHead destroys the journal's end. Nothing can go on then; all nodes
// must say so and run.
func (e *Env) garbageInHead(ctx context.Context) {
	primary := e.ready(ctx).primary
	must(e.cluster.Client.Put(ctx, e.cluster.Layout.Head(), "nonsense"))
	limit := time.Minute
	if e.Break != "" {
		limit = brokenPatience / 2
	}
	for _, n := range e.cluster.Nodes {
		if err := cluster.Poll(ctx, limit, n.Name+" says that the journal cannot be read", func(context.Context) (bool, error) {
			b, err := os.ReadFile(n.Log)
			return bytes.Contains(b, []byte("cannot be read")), err
		}); err != nil {
			e.result.check("a clear error", false, "%v", err)
		}
	}
	s := must(primary.Status(ctx))
	e.result.check("fenced", !cluster.Serves(s), "without a journal the former primary is %v", s.GetNode().GetRole())
	e.did("destroyed the head of the journal; %s says: %s", primary.Name, s.GetNode().GetNotPromotableReason())
	e.allLive()
	e.bounded()
}
