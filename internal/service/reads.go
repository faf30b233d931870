package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/metadata"
)

// ExistKey reports whether a key has a readable replica, and if so extends its
// lease. A missing key is no error.
func (m *Master) ExistKey(ctx context.Context, tenant, key string) (bool, error) {
	if err := m.Fence(ctx); err != nil {
		return false, err
	}
	if err := checkKey("ExistKey", tenant, key); err != nil {
		return false, m.Counters.done(OpExistKey, err)
	}
	exists := m.Counters.existed(m.Leases.Exists(tenant, key, m.Now()))
	return exists, m.Counters.done(OpExistKey, m.Fence(ctx))
}

// BatchExistKey is ExistKey for many keys, in their order. Invalid keys get an
// error of their own.
func (m *Master) BatchExistKey(ctx context.Context, tenant string, keys []string) ([]bool, []error, error) {
	if err := m.begin(ctx, "BatchExistKey", len(keys)); err != nil {
		return nil, nil, m.Counters.done(OpBatchExistKey, err)
	}
	found, failed := make([]bool, len(keys)), make([]error, len(keys))
	now, lookups := m.Now(), m.Store.Lookups(tenant, keys)
	for i, key := range keys {
		if failed[i] = checkKey("BatchExistKey", tenant, key); failed[i] == nil {
			found[i] = m.Counters.existed(m.Leases.BatchExists(lookups, i, now))
		}
	}
	return found, failed, m.Counters.doneBatch(OpBatchExistKey, failed, m.Fence(ctx))
}

// GetReplicaList returns the readable replicas of an object and extends its
// lease. It waits while a mutation of the object is being written, at most
// until the context ends. Errors: ObjectNotFound, ReplicaNotReady.
func (m *Master) GetReplicaList(ctx context.Context, tenant, key string) (metadata.ReplicaList, error) {
	if err := m.Fence(ctx); err != nil {
		return metadata.ReplicaList{}, err
	}
	list, err := m.find(ctx, "GetReplicaList", tenant, key, m.Now(), nil, 0)
	if fenced := m.Fence(ctx); fenced != nil {
		return metadata.ReplicaList{}, fenced
	}
	return list, m.Counters.done(OpGetReplicaList, err)
}

// find is get for a reader that is about to read the object: that counts as a read of it.
func (m *Master) find(ctx context.Context, op, tenant, key string, now metadata.Time, lookups *metadata.Lookups, at int) (metadata.ReplicaList, error) {
	list, err := m.get(ctx, op, tenant, key, now, lookups, at)
	m.promotions.read(tenant, key, list)
	m.hot.read(tenant, key, &list, now)
	return list, err
}

// get extends the lease from now, the time of the call: its client began to count the lease
// earlier. If lookups is not nil, the key is the one at place at of them.
func (m *Master) get(ctx context.Context, op, tenant, key string, now metadata.Time, lookups *metadata.Lookups, at int) (list metadata.ReplicaList, err error) {
	if err := checkKey(op, tenant, key); err != nil {
		return metadata.ReplicaList{}, err
	}
	for {
		var wait <-chan struct{}
		if lookups != nil {
			list, wait, err = m.Leases.BatchGetReplicaList(lookups, at, now)
		} else {
			list, wait, err = m.Leases.GetReplicaList(tenant, key, now)
		}
		if wait == nil {
			m.Counters.got(list.Replicas)
			if err == nil {
				m.Hot.read(tenant, key, now)
			}
			return list, err
		}
		if err := await(ctx, wait); err != nil {
			return metadata.ReplicaList{}, err
		}
	}
}

// An AnswerRoom has the memory for one answer.
type AnswerRoom interface {
	// Room is asked for so many bytes, about, and again as the answer grows. Its error
	// ends the call.
	Room(bytes int) error
}

// BatchGetReplicaList is GetReplicaList for many keys, in their order, each with an error
// of its own, for an answer that needs room; nil for one that needs none.
func (m *Master) BatchGetReplicaList(ctx context.Context, tenant string, keys []string, room AnswerRoom) ([]metadata.ReplicaList, []error, error) {
	if err := m.begin(ctx, "BatchGetReplicaList", len(keys)); err != nil {
		return nil, nil, m.Counters.done(OpBatchGetReplicaList, err)
	}
	lists, failed := make([]metadata.ReplicaList, len(keys)), make([]error, len(keys))
	now, lookups, bytes := m.Now(), m.Store.Lookups(tenant, keys), 0
	for i, key := range keys {
		lists[i], failed[i] = m.find(ctx, "BatchGetReplicaList", tenant, key, now, lookups, i)
		if errors.Is(failed[i], nowait.Err) {
			return nil, nil, failed[i] // all of it is asked again
		}
		if room == nil {
			continue
		}
		bytes += EntryBytes + ReplicaBytes(lists[i].Replicas)
		if err := room.Room(bytes); err != nil {
			return nil, nil, m.Counters.done(OpBatchGetReplicaList, err)
		}
	}
	return lists, failed, m.Counters.doneBatch(OpBatchGetReplicaList, failed, m.Fence(ctx))
}

func (m *Master) begin(ctx context.Context, op string, n int) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	return checkBatch(op, n)
}

// A KeyedList is a replica list with its key.
type KeyedList struct {
	Key string
	metadata.ReplicaList
}

// EntryBytes is about what an entry of an answer, or a replica in it, takes besides
// its texts.
const EntryBytes = 64

// Bytes returns about how many bytes it takes in an answer.
func (k *KeyedList) Bytes() int { return EntryBytes + len(k.Key) + ReplicaBytes(k.Replicas) }

// ReplicaBytes returns about how many bytes replicas take in an answer.
func ReplicaBytes(replicas []metadata.Descriptor) (n int) {
	for i := range replicas {
		r := &replicas[i]
		n += EntryBytes + len(r.Segment) + len(r.Endpoint) + len(r.Protocol) + len(r.Path)
	}
	return n
}

// A Page asks for a part of a long answer.
type Page struct {
	Size  int    // entries at most; 0 for all
	Bytes int    // of entries, about, after which none follows; 0 for all
	Token string // where the page before ended; empty for the first
}

// GetReplicaListByRegex returns the replica lists of the tenant's readable
// objects whose keys the pattern is found in, and extends the lease of each.
// It looks at every object. Errors: InvalidParams for a pattern that Go's
// regexp refuses.
func (m *Master) GetReplicaListByRegex(ctx context.Context, tenant, pattern string, page Page) ([]KeyedList, string, error) {
	if err := m.Fence(ctx); err != nil {
		return nil, "", err
	}
	match, err := compile("GetReplicaListByRegex", pattern)
	if err != nil {
		return nil, "", m.Counters.done(OpGetReplicaListByRegex, err)
	}
	var found []KeyedList
	next, err := m.Scans.scan(ctx, m.Store, tenant, true, match, page, func(key string) int {
		list, err := m.get(ctx, "GetReplicaListByRegex", tenant, key, m.Now(), nil, 0)
		if err != nil {
			return 0 // gone, or not readable, since it was found
		}
		found = append(found, KeyedList{key, list})
		return found[len(found)-1].Bytes()
	})
	if err == nil {
		err = m.Fence(ctx)
	}
	return found, next, m.Counters.done(OpGetReplicaListByRegex, err)
}

// Keys returns the tenant's keys that the pattern is found in (all, if it is
// empty), without a lease.
func (m *Master) Keys(ctx context.Context, tenant, pattern string, readable bool, page Page) ([]string, string, error) {
	if err := m.Fence(ctx); err != nil {
		return nil, "", err
	}
	return m.Scans.Keys(ctx, m.Store, tenant, pattern, readable, page)
}

// Keys is Master.Keys for the state of any node, serving or not.
func (s *Scans) Keys(ctx context.Context, store *metadata.Store, tenant, pattern string, readable bool, page Page) ([]string, string, error) {
	match, err := compile("ListKeys", pattern)
	if err != nil {
		return nil, "", err
	}
	var keys []string
	next, err := s.scan(ctx, store, tenant, readable, match, page, func(key string) int {
		keys = append(keys, key)
		return len(key) + EntryBytes
	})
	return keys, next, err
}

// scan visits matching keys shard by shard, in order inside a shard, until the
// page is full. visit returns how many bytes an entry takes, 0 for none. It returns
// the token of the next page, empty at the end.
func (s *Scans) scan(ctx context.Context, store *metadata.Store, tenant string, readable bool, match func(string) bool, page Page, visit func(key string) (bytes int)) (string, error) {
	shard, after, err := parseToken(page.Token)
	if err != nil {
		return "", err
	}
	end, err := s.read(ctx, "scan")
	if err != nil {
		return "", err
	}
	defer end()
	var keys []metadata.ObjectKey
	for taken, bytes := 0, 0; shard < metadata.ShardCount; shard, after = shard+1, "" {
		keys = slices.DeleteFunc(store.Keys(keys[:0], shard, readable), func(k metadata.ObjectKey) bool {
			return ctx.Err() != nil || k.Tenant != tenant || k.Key <= after && after != "" || match != nil && !match(k.Key)
		})
		if err := ctx.Err(); err != nil {
			return "", errs.Wrap(errs.Unavailable, "scan", err)
		}
		slices.SortFunc(keys, func(a, b metadata.ObjectKey) int { return cmp.Compare(a.Key, b.Key) })
		for _, k := range keys {
			if page.Size > 0 && taken == page.Size || page.Bytes > 0 && bytes >= page.Bytes {
				return formatToken(shard, after), nil
			}
			if n := visit(k.Key); n > 0 {
				taken, bytes = taken+1, bytes+n
			}
			after = k.Key
		}
	}
	return "", nil
}

func formatToken(shard int, after string) string { return strconv.Itoa(shard) + ":" + after }

func parseToken(token string) (shard int, after string, err error) {
	if token == "" {
		return 0, "", nil
	}
	number, after, _ := strings.Cut(token, ":")
	shard, err = strconv.Atoi(number)
	if err != nil || shard < 0 || shard >= metadata.ShardCount {
		return 0, "", errs.New(errs.InvalidParams, "page", "%.128q is no page token; give the one of the page before, or none", token)
	}
	return shard, after, nil
}

// Inspect returns all that is known of an object, without a lease.
func (m *Master) Inspect(ctx context.Context, tenant, key string) (metadata.Object, error) {
	if err := m.Fence(ctx); err != nil {
		return metadata.Object{}, err
	}
	if err := checkKey("QueryKey", tenant, key); err != nil {
		return metadata.Object{}, err
	}
	return m.Store.Inspect(tenant, key)
}
