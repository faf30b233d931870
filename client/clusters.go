package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// MaxClusters is the largest number of clusters that a Clusters can have.
const MaxClusters = 256

// Clusters makes calls of several clusters, for stores that are too large or too busy for
// one master. Each key is in one of them, by Placement over tenant and key. The clusters
// know nothing of one another. It is safe for concurrent use.
//
// A batch goes to all clusters that have keys of it, at once, and its answers come back
// in the order of its keys. Where a cluster does not answer, its keys get the error, and
// all others their answers; only if no cluster answers does the call fail as a whole. A
// call for one key fails with its cluster.
//
// Memory belongs to one cluster: its master alone says who may write where. So a host
// that lends memory to all clusters mounts a segment of its own at each. Make them of one
// size, as each cluster gets the same share of the keys. When a cluster is added, mount a
// further segment there. The keys that move to it are missing at first, as after an
// eviction, and the other clusters evict in time what they have of them.
//
// A call about many objects looks at each cluster's alone: a group is evicted together
// only as far as its keys are in one cluster, a tenant's quota is each cluster's own, and
// PutConfig.SameNode looks at the keys of one cluster. For calls that are missing here,
// such as KeyEvents, use each Client of All.
type Clusters struct {
	clients   []*Client
	placement *Placement
	tenant    string
}

// NewClusters returns a client of clusters with different ClusterIDs. All configurations
// must have the same Tenant; none is the default one. Those without a ClientID get the
// same one.
//
// Errors: InvalidParams.
func NewClusters(configs ...Config) (*Clusters, error) {
	const op = "client.NewClusters"
	if n := len(configs); n == 0 || n > MaxClusters {
		return nil, errs.New(errs.InvalidParams, op, "%d clusters; give 1 to %d", n, MaxClusters)
	}
	c := &Clusters{tenant: cmp.Or(configs[0].Tenant, pb.DefaultTenant)}
	id, memory := uuid.New(), new(claims)
	var ids []string
	for _, config := range configs {
		if config.ClientID == uuid.Nil {
			config.ClientID = id
		}
		one, err := New(config)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("cluster %q: %w", config.ClusterID, err)
		}
		one.claims = memory
		c.clients = append(c.clients, one)
		switch {
		case slices.Contains(ids, one.config.ClusterID):
			err = errs.New(errs.InvalidParams, op, "two clusters have the id %q; keys are placed by their ids, so give each its own", one.config.ClusterID)
		case cmp.Or(one.config.Tenant, pb.DefaultTenant) != c.tenant:
			err = errs.New(errs.InvalidParams, op, "cluster %q has tenant %q, the first one %q; they must be the same", one.config.ClusterID, one.config.Tenant, c.tenant)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		ids = append(ids, one.config.ClusterID)
	}
	c.placement = NewPlacement(ids)
	return c, nil
}

// Close closes the clients of all clusters.
func (c *Clusters) Close() {
	for _, one := range c.clients {
		one.Close()
	}
}

// Of returns the client of the cluster that has a key.
func (c *Clusters) Of(key string) *Client { return c.clients[c.placement.Of(c.tenant, key)] }

// All returns the clients, by the ids of their clusters, in the order in which they were
// given.
func (c *Clusters) All() iter.Seq2[string, *Client] {
	return func(yield func(string, *Client) bool) {
		for i, one := range c.clients {
			if !yield(c.placement.ids[i], one) {
				return
			}
		}
	}
}

func (c *Clusters) client(op, cluster string) (*Client, error) {
	if i := slices.Index(c.placement.ids, cluster); i >= 0 {
		return c.clients[i], nil
	}
	return nil, errs.New(errs.InvalidParams, op, "there is no cluster %q; there are %q", cluster, c.placement.ids)
}

// MountSegment is Client.MountSegment at a cluster. Errors also, as for the clients of All:
// InvalidParams for memory that another cluster has, or may have. That is what this client
// has mounted there, or tried to with an error that leaves the outcome open, until it is
// unmounted there without an error. Then Unavailable, for as long as that cluster's readers
// and writers may be at work in the memory. At the same cluster it can be mounted again.
func (c *Clusters) MountSegment(ctx context.Context, cluster string, s Segment) error {
	one, err := c.client("MountSegment", cluster)
	if err != nil {
		return err
	}
	return one.MountSegment(ctx, s)
}

// UnmountSegment is Client.UnmountSegment at a cluster. After an error, repeat it. Once it
// has succeeded, this client mounts the memory at another cluster when no reader or writer
// of this one can be at work there: at once if there are none, after
// --put_start_release_timeout_sec at most. A mooncake_master does not say; 10 minutes pass.
func (c *Clusters) UnmountSegment(ctx context.Context, cluster string, id uuid.UUID) error {
	one, err := c.client("UnmountSegment", cluster)
	if err != nil {
		return err
	}
	return one.UnmountSegment(ctx, id)
}

// ExistKey is Client.ExistKey.
func (c *Clusters) ExistKey(ctx context.Context, key string) (bool, error) {
	return c.Of(key).ExistKey(ctx, key)
}

// BatchExistKey is Client.BatchExistKey. Once a cluster has found objects, it waits for the
// others for 5 s, half of the default lease: answers do not say for how long they extend
// leases. Then the keys of clusters without an answer are Unavailable.
func (c *Clusters) BatchExistKey(ctx context.Context, keys []string) ([]Existence, error) {
	w := newLeaseWait(ctx)
	defer w.end()
	ask := func(one *Client, keys []string) ([]Existence, error) {
		found, err := one.BatchExistKey(w.ctx, keys)
		if slices.ContainsFunc(found, func(e Existence) bool { return e.Exists }) {
			w.found(existsLease)
		}
		return found, w.why(opBatchExistKey, err)
	}
	return spread(c, keys, itself, ask, func(err error) Existence { return Existence{Err: err} })
}

// GetReplicaList is Client.GetReplicaList.
func (c *Clusters) GetReplicaList(ctx context.Context, key string) (Object, error) {
	return c.Of(key).GetReplicaList(ctx, key)
}

// BatchGetReplicaList is Client.BatchGetReplicaList. Once a cluster has found objects, it waits
// for the others for half of the lease on those, so that the caller can read them: then the
// keys of clusters without an answer are Unavailable.
func (c *Clusters) BatchGetReplicaList(ctx context.Context, keys []string) ([]Found, error) {
	w := newLeaseWait(ctx)
	defer w.end()
	ask := func(one *Client, keys []string) ([]Found, error) {
		found, err := one.BatchGetReplicaList(w.ctx, keys)
		if i := slices.IndexFunc(found, func(f Found) bool { return f.Err == nil }); i >= 0 {
			w.found(found[i].Lease.Remaining())
		}
		return found, w.why(opBatchGetReplicaList, err)
	}
	return spread(c, keys, itself, ask, func(err error) Found { return Found{Err: err} })
}

// PutStart is Client.PutStart.
func (c *Clusters) PutStart(ctx context.Context, item PutItem, config PutConfig) (Reservation, error) {
	return c.Of(item.Key).PutStart(ctx, item, config)
}

// BatchPutStart is Client.BatchPutStart.
func (c *Clusters) BatchPutStart(ctx context.Context, items []PutItem, config PutConfig) ([]Reserved, error) {
	return spread(c, items, func(it PutItem) string { return it.Key },
		func(one *Client, items []PutItem) ([]Reserved, error) { return one.BatchPutStart(ctx, items, config) },
		func(err error) Reserved { return Reserved{Err: err} })
}

// PutEnd is Client.PutEnd.
func (c *Clusters) PutEnd(ctx context.Context, put PutRef, which Selector) error {
	return c.Of(put.Key).PutEnd(ctx, put, which)
}

// PutRevoke is Client.PutRevoke.
func (c *Clusters) PutRevoke(ctx context.Context, put PutRef, which Selector) error {
	return c.Of(put.Key).PutRevoke(ctx, put, which)
}

// BatchPutEnd is Client.BatchPutEnd.
func (c *Clusters) BatchPutEnd(ctx context.Context, puts []PutRef, which Selector) ([]error, error) {
	return spread(c, puts, keyOfPut, func(one *Client, puts []PutRef) ([]error, error) { return one.BatchPutEnd(ctx, puts, which) }, same)
}

// BatchPutRevoke is Client.BatchPutRevoke.
func (c *Clusters) BatchPutRevoke(ctx context.Context, puts []PutRef, which Selector) ([]error, error) {
	return spread(c, puts, keyOfPut, func(one *Client, puts []PutRef) ([]error, error) { return one.BatchPutRevoke(ctx, puts, which) }, same)
}

// Remove is Client.Remove.
func (c *Clusters) Remove(ctx context.Context, key string, how Removal) error {
	return c.Of(key).Remove(ctx, key, how)
}

// BatchRemove is Client.BatchRemove.
func (c *Clusters) BatchRemove(ctx context.Context, keys []string, how Removal) ([]error, error) {
	return spread(c, keys, itself, func(one *Client, keys []string) ([]error, error) { return one.BatchRemove(ctx, keys, how) }, same)
}

// RemoveByRegex is Client.RemoveByRegex at all clusters. With an error it returns the sum
// of the clusters that had none.
func (c *Clusters) RemoveByRegex(ctx context.Context, regex string, how Removal) (RemovalResult, error) {
	return c.sum(func(one *Client) (RemovalResult, error) { return one.RemoveByRegex(ctx, regex, how) })
}

// RemoveAll is Client.RemoveAll at all clusters, as RemoveByRegex.
func (c *Clusters) RemoveAll(ctx context.Context, how Removal) (RemovalResult, error) {
	return c.sum(func(one *Client) (RemovalResult, error) { return one.RemoveAll(ctx, how) })
}

// GetReplicaListByRegex is Client.GetReplicaListByRegex, of one cluster after the other.
func (c *Clusters) GetReplicaListByRegex(ctx context.Context, regex string, pageSize int) iter.Seq2[KeyedObject, error] {
	return func(yield func(KeyedObject, error) bool) {
		for _, one := range c.clients {
			for o, err := range one.GetReplicaListByRegex(ctx, regex, pageSize) {
				if !yield(o, err) || err != nil {
					return
				}
			}
		}
	}
}

func itself(key string) string   { return key }
func keyOfPut(put PutRef) string { return put.Key }
func same(err error) error       { return err }

// sum makes a call of all clusters at once, and adds up their answers.
func (c *Clusters) sum(ask func(*Client) (RemovalResult, error)) (total RemovalResult, err error) {
	results, failed := make([]RemovalResult, len(c.clients)), make([]error, len(c.clients))
	var asked sync.WaitGroup
	for i, one := range c.clients {
		asked.Go(func() { results[i], failed[i] = ask(one) })
	}
	asked.Wait()
	for i := range c.clients {
		total.Removed += results[i].Removed
		total.Leased += results[i].Leased
		total.InProgress += results[i].InProgress
		if err == nil && failed[i] != nil {
			err = fmt.Errorf("cluster %q: %w", c.placement.ids[i], failed[i])
		}
	}
	return total, err
}

// A share is the part of a batch that one cluster has.
type share[T any] struct {
	items []T
	at    []int // in the batch
	err   error // of the call as a whole
}

// spread sends a batch to all clusters that have keys of it, and joins their answers.
// fail turns the error of a cluster into the answer for one item.
func spread[T, R any](c *Clusters, items []T, key func(T) string, ask func(*Client, []T) ([]R, error), fail func(error) R) ([]R, error) {
	shares, used := make([]share[T], len(c.clients)), 0
	for i, item := range items {
		s := &shares[c.placement.Of(c.tenant, key(item))]
		if len(s.at) == 0 {
			used++
		}
		s.items, s.at = append(s.items, item), append(s.at, i)
	}
	if used <= 1 { // or none, which a server refuses
		for i := range shares {
			if len(shares[i].at) == len(items) {
				return ask(c.clients[i], items)
			}
		}
	}
	results := make([]R, len(items))
	var asked sync.WaitGroup
	for i := range shares {
		if s := &shares[i]; len(s.at) > 0 {
			asked.Go(func() { settleShare(s, c.clients[i], c.placement.ids[i], results, ask, fail) })
		}
	}
	asked.Wait()
	var err error
	for i := range shares {
		if len(shares[i].at) > 0 && shares[i].err == nil {
			return results, nil
		}
		if err == nil {
			err = shares[i].err
		}
	}
	return nil, err
}

// settleShare asks a cluster for its share, and files the answers in results.
func settleShare[T, R any](s *share[T], one *Client, id string, results []R, ask func(*Client, []T) ([]R, error), fail func(error) R) {
	answers, err := ask(one, s.items)
	if err != nil {
		s.err = fmt.Errorf("cluster %q: %w", id, err)
	}
	for k, i := range s.at {
		if s.err != nil {
			results[i] = fail(s.err)
		} else {
			results[i] = answers[k]
		}
	}
}
