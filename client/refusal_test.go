package client_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// A client whose token all nodes refuse is told so at once, whether or not etcd might name
// other nodes. One that takes it counts for more.
func TestRefusedToken(t *testing.T) {
	cl := newCluster(t, 2)
	cl.lead(1)
	f := newFront(t, cl.nodes[0].address)
	f.answering(func(method string, _, _ proto.Message, _ error) (proto.Message, error) {
		refusal := errs.New(errs.IllegalClient, "", "the token is unknown, or came without TLS")
		return nil, rpcerr.Status(refusal, method, rpcerr.Source{ClusterID: clusterID, NodeID: "node-0", Term: 1}).Err()
	})
	stranger := newNode(cl, "stranger", "elsewhere")
	for name, config := range map[string]client.Config{
		"alone":           {Addresses: []string{f.address}},
		"with a dead one": {Addresses: []string{f.address, "127.0.0.1:1"}},
		"with a stranger": {Addresses: []string{f.address, stranger.address}},
		"with etcd":       {Addresses: []string{f.address}, EtcdEndpoints: []string{"http://127.0.0.1:1"}},
	} {
		c := connect(t, config)
		_, err := c.ExistKey(soon(t, 30*time.Second), "k")
		wantKind(t, name, err, errs.IllegalClient)
		if err == nil || !strings.Contains(err.Error(), "the token is unknown") {
			t.Errorf("%s: %v does not say why: want \"the token is unknown\" in it", name, err)
		}
	}
	c := connect(t, client.Config{Addresses: []string{f.address, cl.nodes[1].address}})
	within(t, "the primary to be found", func() bool {
		_, err := c.ExistKey(soon(t, 30*time.Second), "k")
		return err == nil
	})
}
