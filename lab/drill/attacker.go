package drill

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/lab/cluster"
)

const (
	attackCommand = "__attack"
	pinned        = "pinned"
	attackPeers   = 100 // connections of an attack
	repeatedKey   = "r" // the key that attacks with unread answers ask for; requests are small
	scansOfPeer   = 10  // calls of each connection that look at all keys
	waitsOfPeer   = 200 // calls of each connection that wait for a sequence
)

// An attack is what each connection of the attacker does to an address, at most until the
// context ends. The node refuses it sooner or later.
type attack struct {
	what  string
	run   func(ctx context.Context, address string)
	at    func(*cluster.Node) string // which address; nil for the proxy in front of it
	peers int                        // connections; 0 for attackPeers
	long  bool                       // it needs the objects with long keys
	waits bool                       // calls of its kind must be refused beside it
	shows string                     // the safeguard without which the attack succeeds; a control needs no other attack
}

// attacks returns all attacks under load on nodes that speak a generation of Mooncake's protocol.
func attacks(generation string) []attack {
	return append([]attack{
		{what: "nothing", run: func(context.Context, string) {}}, // for comparison
		{what: "unfinished requests", run: leaveUnfinished(), shows: "memory-budget"}, {what: "unread answers", run: readNothing(generation)},
		{what: "unfinished gRPC requests", run: leaveUnfinishedGRPC}, {what: "unread gRPC answers", run: readNothingGRPC, shows: "unread-answers"},
		{what: "patterns", run: usePatterns, long: true, shows: "scan-turns"}, {what: "waits", run: waitForNothing, waits: true, shows: "digest-places"},
		{what: "streams of all events", run: readAllEvents}, {what: "questions for the status", run: askForStatus},
		{what: "long names", run: mountLongNames, at: direct},
	}, append(floods(generation), halfOpen()...)...)
}

// direct is a node's gRPC address past the proxy in front of it: whoever comes through that has
// the address of all others.
func direct(n *cluster.Node) string { return n.Conn.Target() }

// chosen returns the attacks of this run: with a safeguard missing the one that shows it, so
// that a control ends soon.
func (e *Env) chosen() []attack {
	all := attacks(e.Access.Generation)
	for _, a := range all {
		if e.Break != "" && a.shows == e.Break {
			return []attack{a}
		}
	}
	return all
}

// An attacker is a process that attacks a node, pinned to one core.
type attacker struct {
	*exec.Cmd
	parent io.Closer // the attacker ends when this pipe closes
	out    *bufio.Reader
	faults bytes.Buffer
}

func (e *Env) attack(ctx context.Context, address, what string, lasts time.Duration) *attacker {
	a := &attacker{Cmd: exec.CommandContext(ctx, must(os.Executable()), attackCommand, what, address, lasts.String(), e.Access.Generation)}
	a.Env, a.Stderr = append(os.Environ(), cluster.Parented+"=1"), &a.faults
	a.parent, a.out = must(a.StdinPipe()), bufio.NewReader(must(a.StdoutPipe()))
	do(a.Start())
	return a
}

// report waits for what the attacker says of itself, and reads it.
func (a *attacker) report(to any) {
	line, err := a.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, to)
	}
	if err != nil {
		a.end()
		do(fmt.Errorf("the attacker reports nothing: %w: %s", err, a.faults.String()))
	}
}

func (a *attacker) end() {
	_ = a.parent.Close()
	_ = a.Wait()
}

// attackFor is how long an attack under load lasts.
func (e *Env) attackFor() time.Duration {
	if e.Short {
		return hostileFor / 2
	}
	return hostileFor
}

func (e *Env) underAttack(ctx context.Context, address string, a attack) {
	attacker := e.attack(ctx, address, a.what, e.attackFor())
	defer func() { _ = attacker.parent.Close() }()
	if a.waits {
		refused := refusedWaits(ctx, address, e.attackFor())
		e.result.check("waits are bounded", refused > 0, "none of %d more calls of one host that wait was refused under %s", waitsOfPeer, a.what)
	}
	if err := attacker.Wait(); err != nil {
		do(fmt.Errorf("the attacker: %w: %s", err, attacker.faults.String()))
	}
}

// RunChild is cluster.RunChild for programs that run drills: they start themselves as
// attackers, too.
func RunChild() (status int, child bool) {
	if len(os.Args) < 6 || os.Args[1] != attackCommand {
		return cluster.RunChild()
	}
	cluster.DieWithParent()
	if err := runAttacker(os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// runAttacker attacks a node over many connections. It first executes itself again on one core,
// since pinning does not affect the threads that the Go runtime has already started.
func runAttacker(what, address, lasts, generation string) error {
	if len(os.Args) == 6 {
		runtime.LockOSThread()
		if err := pin(); err != nil {
			return err
		}
		return syscall.Exec(must(os.Executable()), append(slices.Clone(os.Args), pinned), os.Environ())
	}
	d, err := time.ParseDuration(lasts)
	if err != nil {
		return err
	}
	all := append(attacks(generation), attack{what: greedyPeer, run: takeAll, peers: 1})
	i := slices.IndexFunc(all, func(a attack) bool { return a.what == what })
	if i < 0 {
		return fmt.Errorf("there is no attack %q", what)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var g errgroup.Group
	for range cmp.Or(all[i].peers, attackPeers) {
		g.Go(func() error {
			all[i].run(ctx, address)
			<-ctx.Done()
			return nil
		})
	}
	return g.Wait()
}

// pin binds this thread, and the program that it executes, to one core.
func pin() error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			return unix.SchedSetaffinity(0, &one)
		}
	}
	return errors.New("there is no core")
}

// usePatterns reads objects by a slow pattern that no key matches, with several calls at a
// time. Lists of keys would do less: of operators' calls few are answered at once, patterns or not.
func usePatterns(ctx context.Context, address string) {
	onConn(address, func(c *grpc.ClientConn) {
		var g errgroup.Group
		for range scansOfPeer {
			g.Go(func() error {
				_, err := pb.NewObjectServiceClient(c).GetReplicaListByRegex(ctx, &pb.GetReplicaListByRegexRequest{Regex: "(x+x+)+y"})
				return err
			})
		}
		_ = g.Wait()
	})
}

// waitForNothing waits for a sequence that never comes, with many calls at a time.
func waitForNothing(ctx context.Context, address string) { refusedWaits(ctx, address, 0) }

// refusedWaits is waitForNothing for a while at most, without a limit if that is 0. It returns how
// many of the calls the node refused; of those that a busy machine has not sent in time, none was.
func refusedWaits(ctx context.Context, address string, lasts time.Duration) int64 {
	if lasts > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lasts)
		defer cancel()
	}
	var refused atomic.Int64
	onConn(address, func(c *grpc.ClientConn) {
		var g errgroup.Group
		for range waitsOfPeer {
			g.Go(func() error {
				_, err := pb.NewAdminServiceClient(c).Digest(ctx, &pb.DigestRequest{Sequence: 1 << 40})
				if e, from := rpcerr.Parse(err); from.NodeID != "" && e.Kind == errs.Unavailable { // the node says so
					refused.Add(1)
				}
				return err
			})
		}
		_ = g.Wait()
	})
	return refused.Load()
}

func readAllEvents(ctx context.Context, address string) {
	onConn(address, func(c *grpc.ClientConn) {
		for ctx.Err() == nil {
			stream, err := pb.NewAdminServiceClient(c).Events(ctx, &pb.EventsRequest{FromSequence: 1})
			for err == nil {
				_, err = stream.Recv()
			}
		}
	})
}

// askForStatus asks for the status, and for the history of terms, without a pause: both come from
// etcd.
func askForStatus(ctx context.Context, address string) {
	onConn(address, func(c *grpc.ClientConn) {
		for ctx.Err() == nil {
			_, _ = pb.NewAdminServiceClient(c).Status(ctx, &pb.StatusRequest{})
			_, _ = pb.NewAdminServiceClient(c).History(ctx, &pb.HistoryRequest{})
		}
	})
}

// onConn does something with a gRPC connection.
func onConn(address string, do func(*grpc.ClientConn)) {
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(64<<10)) // the node cannot send more of an answer until it is read
	if err != nil {
		return
	}
	defer c.Close()
	do(c)
}

// leaveUnfinished sends the largest request of Mooncake's protocol without its last byte.
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
func readNothing(generation string) func(context.Context, string) {
	g, _ := mooncake.NewGeneration(cmp.Or(generation, mooncake.Names()[0]))
	args := mooncake.Args{Key: "x"}
	frame := mooncakeFrame(g.GetReplicaListByRegex.ID, structpack.Pack(new(structpack.Writer), nil, g.GetReplicaListByRegex.Args, &args))
	return func(ctx context.Context, address string) {
		onSocket(ctx, address, func(c net.Conn) {
			for range 10 {
				if _, err := c.Write(frame); err != nil {
					return
				}
			}
			<-ctx.Done()
		})
	}
}

// leaveUnfinishedGRPC begins calls with requests of 16 MiB, and leaves out their last byte.
func leaveUnfinishedGRPC(ctx context.Context, address string) {
	plain := &http.Transport{Protocols: new(http.Protocols)}
	plain.Protocols.SetUnencryptedHTTP2(true)
	defer plain.CloseIdleConnections()
	message := make([]byte, 5+16<<20-64)
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-5))
	var g errgroup.Group
	for range 2 {
		g.Go(func() error {
			rest, open := io.Pipe()
			defer open.Close()
			defer context.AfterFunc(ctx, func() { _ = open.Close() })()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+pb.ObjectService_BatchExistKey_FullMethodName,
				io.MultiReader(bytes.NewReader(message[:len(message)-1]), rest))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/grpc")
			r.Header.Set("TE", "trailers")
			answer, err := plain.RoundTrip(r)
			if err == nil {
				_ = answer.Body.Close()
			}
			return err
		})
	}
	_ = g.Wait()
}

// readNothingGRPC asks for one object ten thousand times a call, again and again, and reads no
// answer. It makes the next call when an answer begins or is refused.
func readNothingGRPC(ctx context.Context, address string) {
	onConn(address, func(c *grpc.ClientConn) {
		request := &pb.BatchGetReplicaListRequest{Keys: slices.Repeat([]string{repeatedKey}, pb.MaxBatchItems)}
		for ctx.Err() == nil {
			stream, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pb.ObjectService_BatchGetReplicaList_FullMethodName, grpc.WaitForReady(true))
			if err == nil {
				err = errors.Join(stream.SendMsg(request), stream.CloseSend())
			}
			if err == nil {
				_, _ = stream.Header()
			}
		}
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

func mooncakeFrame(function uint32, body []byte) []byte {
	frame := []byte{coro.Magic, 0, 0, 0, 0, 0, 0, 0}
	frame = binary.LittleEndian.AppendUint32(frame, function)
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(body)))
	return append(append(frame, 0, 0, 0, 0), body...)
}
