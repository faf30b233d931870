package rpc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc"
)

// slowings are an Observer that waits for connections to be slowed down.
type slowings struct {
	*calls
	slowed chan struct{}
}

func (s slowings) Slowed(bool) {
	select {
	case s.slowed <- struct{}{}:
	default:
	}
}

func newFloodedNode(t *testing.T, now clock.Clock) (*node, chan struct{}) {
	slowed := make(chan struct{}, 1)
	return newNode(t, func(c *rpc.Config) { c.Observer, c.Clock = slowings{new(calls), slowed}, now }).mount(), slowed
}

// Who sends frames without calls, or calls that it resets, is soon not read for a
// while; others are served, those on the same host included.
func TestFloodsAreSlowed(t *testing.T) {
	for what, flood := range map[string]func(p *rawPeer) error{
		"settings":           func(p *rawPeer) error { return p.WriteSettings() },
		"window updates":     func(p *rawPeer) error { return p.WriteWindowUpdate(0, 1) },
		"unknown frames":     func(p *rawPeer) error { return p.WriteRawFrame(99, 0, 0, nil) },
		"data of no call":    func(p *rawPeer) error { return p.WriteData(1, false, make([]byte, 2000)) },
		"resets of no call":  func(p *rawPeer) error { return p.WriteRSTStream(1, http2.ErrCodeCancel) },
		"priorities":         func(p *rawPeer) error { return p.WritePriority(1, http2.PriorityParam{}) },
		"calls that it ends": resetCall,
	} {
		t.Run(what, func(t *testing.T) {
			n, slowed := newFloodedNode(t, func() time.Duration { return 0 }) // nothing comes back with time
			p := n.raw()
			go func() {
				for flood(p) == nil {
				}
			}()
			select {
			case <-slowed:
			case <-time.After(30 * time.Second):
				t.Error("a flood for 30 s: got no connection slowed, want that one")
			}
			for i := range 100 {
				n.put(fmt.Sprint("k", i))
			}
			_ = p.Close()
			for over := false; !over; {
				select {
				case <-p.acks:
				case <-p.ended:
					over = true
				}
			}
		})
	}
}

func resetCall(p *rawPeer) error {
	if err := p.open(pb.AdminService_Status_FullMethodName, 0); err != nil {
		return err
	}
	return p.WriteRSTStream(p.stream-1, http2.ErrCodeCancel)
}

// Clients are not slowed down: whatever they call, with large requests and answers too, and some
// of which they give up.
func TestClientsAreNotSlowed(t *testing.T) {
	n, slowed := newFloodedNode(t, nil)
	keys := make([]string, 5000)
	for i := range keys {
		keys[i] = fmt.Sprintf("%064d", i)
	}
	n.put(keys...)
	done := make(chan error)
	for range 8 {
		go func() {
			var err error
			for i := 0; i < 2000 && err == nil; i++ {
				switch {
				case i%100 == 0:
					_, err = n.objects.BatchGetReplicaList(t.Context(), &pb.BatchGetReplicaListRequest{Keys: keys})
				case i%50 == 1:
					ctx, giveUp := context.WithTimeout(t.Context(), 100*time.Microsecond)
					_, _ = n.objects.BatchGetReplicaList(ctx, &pb.BatchGetReplicaListRequest{Keys: keys[:100]})
					giveUp()
				default:
					_, err = n.objects.ExistKey(t.Context(), &pb.ExistKeyRequest{Key: "k"})
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	select {
	case <-slowed:
		t.Error("calls of clients: got a connection slowed, want none: only floods are")
	default:
	}
}
