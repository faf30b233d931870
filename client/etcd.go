package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leaderKey is the key of the elected node in etcd, as package journal has it.
func leaderKey(prefix, clusterID string) string {
	return strings.TrimRight(prefix, "/") + "/" + clusterID + "/leader"
}

// viewKey is where Mooncake's clients look for their master: the value is the
// host:port of the node that serves, its revision the version of that view.
func viewKey(clusterID string) string { return "mooncake-store/" + clusterID + "/master_view" }

// An electedNode is what a client needs of the leader key's value. While its
// state is "elected" it does not serve yet, but is about to.
type electedNode struct {
	Address string `json:"rpc_address"`
	Term    uint64 `json:"term"`
}

// A leaderWatch tells the finder what stands in the leader key.
type leaderWatch struct {
	client *clientv3.Client
	key    string
	parse  func(*mvccpb.KeyValue) (electedNode, error)
	finder *finder
	log    zerolog.Logger
}

// newLeaderWatch returns the watch of the key that a client goes by.
func newLeaderWatch(client *clientv3.Client, finder *finder, config *Config) *leaderWatch {
	w := &leaderWatch{client: client, key: leaderKey(config.EtcdPrefix, config.ClusterID), parse: parseElected, finder: finder, log: config.Log}
	if config.Protocol == Mooncake {
		w.key, w.parse = viewKey(config.ClusterID), parseView
	}
	return w
}

const readTimeout = 3 * time.Second

// run watches until the context ends, whatever happens to etcd. The client
// lives without it, by what it knows and by hints.
func (w *leaderWatch) run(ctx context.Context) {
	pauses := newPauses()
	pauses.MaxInterval = 2 * time.Second
	for {
		told, err := w.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		w.log.Debug().Err(err).Msg("etcd does not tell the leader, trying again")
		if told {
			pauses.Reset()
		}
		t := time.NewTimer(pauses.NextBackOff())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// follow reads the key and then watches it, until that fails. It reports
// whether etcd has answered at all.
func (w *leaderWatch) follow(ctx context.Context) (told bool, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	read, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	resp, err := w.client.Get(read, w.key)
	if err != nil {
		return false, err
	}
	for _, kv := range resp.Kvs {
		w.tell(kv)
	}
	for r := range w.client.Watch(ctx, w.key, clientv3.WithRev(resp.Header.Revision+1)) {
		if err := r.Err(); err != nil {
			return true, err
		}
		for _, e := range r.Events {
			if e.Type == clientv3.EventTypePut {
				w.tell(e.Kv)
			}
		}
	}
	return true, errors.New("the watch ended")
}

func (w *leaderWatch) tell(kv *mvccpb.KeyValue) {
	node, err := w.parse(kv)
	if err != nil {
		w.log.Debug().Err(err).Str("key", w.key).Msg("cannot read the leader key")
		return
	}
	w.finder.told(node.Address, node.Term)
}

func parseElected(kv *mvccpb.KeyValue) (electedNode, error) {
	var node electedNode
	if err := json.Unmarshal(kv.Value, &node); err != nil {
		return node, fmt.Errorf("the leader key cannot be read: %w", err)
	}
	if node.Address == "" || node.Term == 0 {
		return node, fmt.Errorf("the leader key names no node: %s", kv.Value)
	}
	return node, nil
}

func parseView(kv *mvccpb.KeyValue) (electedNode, error) {
	address := string(kv.Value)
	if _, _, err := net.SplitHostPort(address); err != nil {
		return electedNode{}, fmt.Errorf("the master's view names no host:port: %w", err)
	}
	return electedNode{Address: address, Term: uint64(kv.ModRevision)}, nil
}
