package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/service"
)

// A stream of events that is behind waits for its host's turn. One that has come to the end
// goes on meanwhile.
func TestStreamsBehindTakeTurns(t *testing.T) {
	t.Parallel()
	a := run(t, settings(config.Primary, "a", etcdtest.Start(t).Endpoints()))
	a.serves()
	cl := writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	events := func(r *pb.EventsRequest) grpc.ServerStreamingClient[pb.EventsResponse] {
		stream, err := a.admin.Events(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	live := events(&pb.EventsRequest{Follow: true})
	follow := func(key string) {
		t.Helper()
		put(t, cl, key)
		for text := ""; !strings.Contains(text, fmt.Sprintf("key %q", key)); {
			e, err := live.Recv()
			if err != nil {
				t.Fatalf("following the put of %s: got %v, want no error", key, err)
			}
			text = e.GetText()
		}
	}
	follow("a")
	follow("b") // was put after the first look at the end, so the stream has come to it

	host := service.From(ctx, service.Caller{Peer: "127.0.0.1"})
	end, err := a.scans.CatchUp(host)
	if err != nil {
		t.Fatal(err)
	}
	behind, came := events(&pb.EventsRequest{}), make(chan error, 1)
	go func() {
		_, err := behind.Recv()
		came <- err
	}()
	for _, key := range []string{"c", "d", "e"} {
		follow(key)
	}
	select {
	case err := <-came:
		t.Errorf("a stream that is behind, while another has its host's turn: got an event or error %v, want that it waits", err)
		came <- err
	default:
	}
	end()
	for err = <-came; err == nil; {
		_, err = behind.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("in its turn: got %v, want all events", err)
	}
	if end, err = a.scans.CatchUp(host); err != nil {
		t.Fatalf("the host's turn after the stream that was behind has ended: got error %v, want the turn given back", err)
	}
	end()
}
