package rpc

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc/peer"

	"github.com/understudy-store/understudy/internal/security/access"
)

// One identity gets half of the places, from however many hosts it calls; nodes count by host.
func TestPlacesOfOneIdentity(t *testing.T) {
	p := newHostPlaces("calls are under way", 8)
	var giveBacks []func()
	take := func(host, name string, role access.Roles) (n int) {
		ctx := peer.NewContext(context.WithValue(t.Context(), callerKey{}, access.Identity{Name: name, Role: role}), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(host)}})
		for range 3 {
			if giveBack, err := p.take(ctx); err == nil {
				giveBacks = append(giveBacks, giveBack)
				n++
			}
		}
		return n
	}
	for _, test := range []struct {
		host, name string
		role       access.Roles
		want       int
	}{
		{"10.0.0.1", "ci", access.Operator, 3}, {"10.0.0.2", "ci", access.Operator, 1}, // half of all
		{"10.0.0.3", "node", access.Node, 3},
		{"10.0.0.4", "other", access.Operator, 1}, // that are all
	} {
		if got := take(test.host, test.name, test.role); got != test.want {
			t.Errorf("%s from %s got %d places, want %d", test.name, test.host, got, test.want)
		}
	}
	for _, giveBack := range giveBacks {
		giveBack()
	}
	if !p.taken.Empty() || !p.identified.Empty() {
		t.Error("all places are given back: got some counted, want none")
	}
	if a, b := take("10.0.0.5", "node", access.Node), take("10.0.0.6", "node", access.Node); a+b != 6 {
		t.Errorf("nodes of one name got %d and %d places at two hosts, want 3 each", a, b)
	}
}
