package etcdserver_test

import (
	"net"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// Who would found an etcd notices that members of another one know its address as that of
// one of theirs, and that it cannot listen there.
func TestAClaimedAddress(t *testing.T) {
	first, second := one(t, "a"), one(t, "b")
	first.Member.Founds = true
	at := second.Member.PeerAddr
	if err := etcdserver.CheckUnclaimed(t.Context(), at, etcdserver.TLS{}, etcdserver.ClaimWait); err != nil {
		t.Errorf("an address that nobody calls: got error %v, want it unclaimed", err)
	}
	a := start(t, first)
	if err := etcdserver.CheckUnclaimed(t.Context(), first.Member.PeerAddr, etcdserver.TLS{}, 0); err == nil {
		t.Error("an address where another listens: got no error, want one")
	}
	client := dial(t, a.Endpoints()...)
	if _, err := client.MemberAddAsLearner(t.Context(), []string{etcdserver.PeerURL(at, etcdserver.TLS{})}); err != nil {
		t.Fatal(err)
	}
	err := etcdserver.CheckUnclaimed(t.Context(), at, etcdserver.TLS{}, 20*etcdserver.ClaimWait)
	if err == nil || !strings.Contains(err.Error(), "as one of its members") {
		t.Errorf("got %v, want that it is called", err)
	}
	if l, err := net.Listen("tcp", at); err != nil {
		t.Errorf("an address after the check: got error %v, want it free again", err)
	} else {
		_ = l.Close()
	}
}
