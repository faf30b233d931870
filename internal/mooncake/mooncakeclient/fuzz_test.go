package mooncakeclient

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// A parrot answers each call with the same bytes.
type parrot struct{ says *atomic.Pointer[[]byte] }

func (p parrot) Call(_ context.Context, _ uint32, _ string, reply []byte) ([]byte, error) {
	return append(reply, *p.says.Load()...), nil
}
func (parrot) Quick(uint32) bool { return false }
func (parrot) Delivered(int)     {}
func (parrot) Close()            {}

// FuzzAnswers has a master answer anything to each call of each generation: the client
// returns what can be understood or an error, and for a batch as much as was asked for.
func FuzzAnswers(f *testing.F) {
	says := new(atomic.Pointer[[]byte])
	server := coro.NewServer(&coro.Server{Open: func(*coro.Conn) coro.Handler { return parrot{says} }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	f.Cleanup(func() {
		at, once := context.WithCancel(context.Background())
		once()
		_ = server.Stop(at)
		if err := <-served; err != nil {
			f.Errorf("serve: got %v, want no error", err)
		}
	})
	var callers []*caller
	for _, name := range mooncake.Names() {
		tr, err := NewTransport(name)
		if err != nil {
			f.Fatal(err)
		}
		c := tr.newCaller(l.Addr().String(), client.Config{ClusterID: "c", MaxMessageBytes: 1 << 20})
		f.Cleanup(func() { _ = c.Close() })
		callers = append(callers, c)
	}
	id := uuid.UUID{1}.String()
	keys := []string{"a", "b"}
	requests := map[string][2]proto.Message{
		pb.ObjectService_ExistKey_FullMethodName:               {&pb.ExistKeyRequest{Key: "a"}, new(pb.ExistKeyResponse)},
		pb.ObjectService_BatchExistKey_FullMethodName:          {&pb.BatchExistKeyRequest{Keys: keys}, new(pb.BatchExistKeyResponse)},
		pb.ObjectService_GetReplicaList_FullMethodName:         {&pb.GetReplicaListRequest{Key: "a"}, new(pb.GetReplicaListResponse)},
		pb.ObjectService_BatchGetReplicaList_FullMethodName:    {&pb.BatchGetReplicaListRequest{Keys: keys}, new(pb.BatchGetReplicaListResponse)},
		pb.ObjectService_GetReplicaListByRegex_FullMethodName:  {&pb.GetReplicaListByRegexRequest{Regex: "a"}, new(pb.GetReplicaListByRegexResponse)},
		pb.ObjectService_BatchRemove_FullMethodName:            {&pb.BatchRemoveRequest{Keys: keys}, new(pb.BatchRemoveResponse)},
		pb.ObjectService_RemoveAll_FullMethodName:              {new(pb.RemoveAllRequest), new(pb.RemoveAllResponse)},
		pb.ObjectService_BatchReplicaClear_FullMethodName:      {&pb.BatchReplicaClearRequest{ClientId: id, Keys: keys}, new(pb.BatchReplicaClearResponse)},
		pb.ClientService_Ping_FullMethodName:                   {&pb.PingRequest{ClientId: id}, new(pb.PingResponse)},
		pb.ClientService_BatchQueryIp_FullMethodName:           {&pb.BatchQueryIpRequest{ClientIds: []string{id}}, new(pb.BatchQueryIpResponse)},
		pb.ClientService_GetStorageConfig_FullMethodName:       {new(pb.GetStorageConfigRequest), new(pb.GetStorageConfigResponse)},
		pb.ClientService_OffloadObjectHeartbeat_FullMethodName: {&pb.OffloadObjectHeartbeatRequest{ClientId: id}, new(pb.OffloadObjectHeartbeatResponse)},
	}
	for _, c := range callers {
		w, g := new(structpack.Writer), c.generation
		f.Add(structpack.Pack(w, nil, g.ExistKey.Result, &mooncake.Result[bool]{Value: true}))
		f.Add(structpack.Pack(w, nil, g.RemoveByRegex.Result, &mooncake.Result[int64]{Value: 7}))
	}
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, answer []byte) {
		says.Store(&answer)
		for _, c := range callers {
			for method, m := range requests {
				resp := m[1].ProtoReflect().New().Interface()
				if err := c.Invoke(t.Context(), method, m[0], resp); err != nil {
					continue
				}
				switch r := resp.(type) {
				case *pb.BatchExistKeyResponse:
					if len(r.GetExists()) != len(keys) {
						t.Fatalf("%s, answer %x: got %d answers, want one for each of %d keys", c.generation.Name, answer, len(r.GetExists()), len(keys))
					}
				case *pb.BatchGetReplicaListResponse:
					if len(r.GetObjects()) != len(keys) {
						t.Fatalf("%s, answer %x: got %d lists, want one for each of %d keys", c.generation.Name, answer, len(r.GetObjects()), len(keys))
					}
				}
			}
		}
	})
}

// FuzzView reads any view of the master: it names an address to dial, or is refused.
func FuzzView(f *testing.F) {
	f.Add([]byte("a:1"), int64(7))
	f.Add([]byte("[::1]:"), int64(-1))
	f.Fuzz(func(t *testing.T, view []byte, revision int64) {
		address, _, err := new(Transport).ParseLeader(view, revision)
		if err != nil {
			return
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			t.Fatalf("view %q: got the address %q, error %v, want a host and a port", view, address, err)
		}
	})
}
