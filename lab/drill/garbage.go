package drill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/lab/cluster"
)

// garbage sends nonsense to every port and writes it into every record of etcd.
func garbage(ctx context.Context, e *Env) {
	if e.episode(ctx, episode{}, e.garbageInHead); e.noticed() {
		return
	}
	ep := episode{work: &work{}}
	ep.Args = everyPort()
	e.episode(ctx, ep, func(ctx context.Context) {
		for _, n := range e.cluster.Nodes {
			if err := e.garbageAtPorts(ctx, n); err != nil {
				do(fmt.Errorf("garbage at %s: %w", n.Name, err))
			}
		}
		e.publishes(ctx)
		e.did("sent garbage to all ports")
		e.garbageInEtcd(ctx)
		e.load.answers(ctx, answersPerWait)
		e.allLive()
		e.result.Rounds++
		e.bounded()
	})
}

// everyPort returns arguments that open the ports that nodes do not open by default.
func everyPort() []string {
	names := mooncake.Names()
	return []string{
		"--mooncake-listen=" + names[len(names)-1] + "=127.0.0.1:0", "--enable_kv_events", "--kv_events_bind_endpoint=tcp://127.0.0.1:0",
		"--enable_http_metadata_server", "--http_metadata_server_host=127.0.0.1", "--http_metadata_server_port=0",
	}
}

// ports returns the addresses at which a node with everyPort listens.
func ports(n *cluster.Node) []string {
	list := slices.Collect(maps.Values(n.Mooncake))
	return append(list, strings.TrimPrefix(n.Conn.Target(), "passthrough:///"), n.HTTP, n.Metadata, n.KVEvents)
}

// publishes demands that a subscriber over ZeroMQ gets KV events of the primary.
func (e *Env) publishes(ctx context.Context) {
	p, _ := e.primary(ctx, 0)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s := zmq4.NewSub(ctx)
	defer func() { _ = s.Close() }()
	err := errors.Join(s.Dial("tcp://"+p.KVEvents), s.SetOption(zmq4.OptionSubscribe, ""))
	if err == nil {
		_, err = s.Recv()
	}
	e.result.check("KV events go on", err == nil, "a subscriber of %s: %v", p.Name, err)
}

// allLive demands that no node has ended by itself.
func (e *Env) allLive() {
	for _, n := range e.cluster.Nodes {
		if n.Process != nil {
			e.result.check("no crash", n.Alive() && !n.Crashed, "%s runs: %t; it ended by itself before: %t; see %s", n.Name, n.Alive(), n.Crashed, n.Log)
		}
	}
}

// maxNonsense is the size of the largest garbage message, in bytes.
const maxNonsense = 32 << 20

// nonsense are messages that no port expects.
func nonsense(rng *rand.Rand) map[string][]byte {
	random := randomBytes(rng, 256<<10)
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	greeting := append(append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0}, "NULL"...), make([]byte, 48)...)
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
		// What a subscriber over ZeroMQ begins with.
		"half a greeting":           greeting[:20],
		"a greeting and random":     append(bytes.Clone(greeting), random...),
		"an oversized command":      append(bytes.Clone(greeting), 6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"an oversized subscription": append(append(bytes.Clone(greeting), zmqReady...), 2, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"subscriptions without end": append(append(bytes.Clone(greeting), zmqReady...), bytes.Repeat([]byte{0, 1, 1}, 1<<20)...),
	}
}

// zmqReady is the command of a subscriber over ZeroMQ that follows the greetings.
const zmqReady = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"

func (e *Env) garbageAtPorts(ctx context.Context, n *cluster.Node) error {
	for what, bytes := range nonsense(e.rng) {
		for _, address := range ports(n) {
			if err := sendBytes(ctx, address, bytes); err != nil {
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

// sendBytes sends bytes and closes the connection when the node does, or after a while. The
// node may close it at any time.
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

// callWithGarbage makes a call with random bytes as its message. Any answer is right, as long
// as there is one.
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
