package metaserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"

	"github.com/understudy-store/understudy/internal/clock"
)

// Memory is a Store that ends with its process.
type Memory struct {
	mu     sync.Mutex // guards the rest
	values map[string][]byte
	held   totals
}

// Get returns the value of a key.
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[key], nil
}

// Update changes the value of a key.
func (m *Memory) Update(_ context.Context, key string, decide func([]byte) ([]byte, bool)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.values[key]
	value, change := decide(old)
	if !change {
		return nil
	}
	held, err := m.held.after(key, old, value)
	if err != nil {
		return err
	}
	m.held = held
	if value == nil {
		delete(m.values, key)
		return nil
	}
	if m.values == nil {
		m.values = make(map[string][]byte)
	}
	m.values[strings.Clone(key)] = value // it is part of a URL
	return nil
}

// Etcd is a Store in etcd.
type Etcd struct {
	Client *clientv3.Client
	// Root is the prefix of all keys. It lies outside of the journal's, which every
	// standby watches.
	Root string
	// Full reports that etcd is nearly full, so that nothing may be written.
	Full    func() bool
	turn    chan struct{} // held by the one change that this node makes at a time
	clock   clock.Clock
	written *rate.Limiter // bytes of values; guarded by turn
}

// writtenPerSecond bounds the bytes of values that a node writes to etcd, after as many as
// the store may hold. Old values stay in etcd's history, which is cut once in a TTL of the
// journal's records, 60 s: that is 64 MiB of it, of a quota of 2 GiB.
const writtenPerSecond = 1 << 20

// NewEtcd returns a store for one cluster under a prefix.
func NewEtcd(client *clientv3.Client, prefix, clusterID string, full func() bool) *Etcd {
	return &Etcd{Client: client, Root: prefix + "-http-metadata/" + clusterID + "/", Full: full, turn: make(chan struct{}, 1), clock: clock.Boot(), written: rate.NewLimiter(writtenPerSecond, MaxBytes)}
}

func (e *Etcd) key(key string) string { return e.Root + "keys/" + key }

// total is the key of the store's totals, which every change compares.
func (e *Etcd) total() string { return e.Root + "total" }

// Get returns the value of a key.
func (e *Etcd) Get(ctx context.Context, key string) ([]byte, error) {
	resp, err := e.Client.Get(ctx, e.key(key))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, err
	}
	return append([]byte{}, resp.Kvs[0].Value...), nil
}

// Update changes the value of a key. Changes of this node take turns, so that hosts
// that start together do not make each other try again.
func (e *Etcd) Update(ctx context.Context, key string, decide func([]byte) ([]byte, bool)) error {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		done, err := e.try(ctx, key, decide)
		if done || err != nil {
			return err
		}
	}
}

// try makes the change unless another node makes one at the same time.
func (e *Etcd) try(ctx context.Context, key string, decide func([]byte) ([]byte, bool)) (done bool, err error) {
	resp, err := e.Client.Txn(ctx).Then(clientv3.OpGet(e.key(key)), clientv3.OpGet(e.total())).Commit()
	if err != nil {
		return false, err
	}
	var old, text []byte
	var revs [2]int64
	for i, to := range []*[]byte{&old, &text} {
		if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			*to, revs[i] = append([]byte{}, kvs[0].Value...), kvs[0].ModRevision
		}
	}
	value, change := decide(old)
	if !change {
		return true, nil
	}
	var held totals
	if text != nil {
		if _, err := fmt.Sscanf(string(text), "%d %d", &held.keys, &held.bytes); err != nil {
			return false, fmt.Errorf("etcd has %d bytes, %.40q, under %s, which are no count of keys and bytes: delete the key, or write both counts there: %w", len(text), text, e.total(), err)
		}
	}
	if held, err = held.after(key, old, value); err != nil {
		return false, err
	}
	write := clientv3.OpDelete(e.key(key))
	if value != nil {
		if e.Full() {
			return false, errors.New("etcd is nearly full, so nothing is written; try again")
		}
		if !e.written.AllowN(time.Unix(0, 0).Add(e.clock()), len(value)) {
			return false, errors.New("more was written than etcd's history has room for, so nothing is written; try again in a minute")
		}
		write = clientv3.OpPut(e.key(key), string(value))
	}
	written, err := e.Client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(e.key(key)), "=", revs[0]),
		clientv3.Compare(clientv3.ModRevision(e.total()), "=", revs[1]),
	).Then(write, clientv3.OpPut(e.total(), fmt.Sprintf("%d %d", held.keys, held.bytes))).Commit()
	if err != nil {
		return false, err
	}
	return written.Succeeded, nil
}
