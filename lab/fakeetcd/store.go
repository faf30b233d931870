package fakeetcd

import (
	"slices"
	"sort"

	"github.com/tidwall/btree"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A store is etcd's multi-version key space. It knows nothing of leases, time
// and connections. Not safe for concurrent use.
//
// Key-values in it are never changed once they are there, so answers may share
// them.
type store struct {
	revision  int64 // of the last write; 1 for none, as in etcd
	compacted int64 // history before it is gone
	keys      btree.Map[string, []version]
	events    []*mvccpb.Event // from compacted on, in order
	bytes     int64           // of all versions
}

// A version is one value of a key, or its deletion.
type version struct {
	kv   *mvccpb.KeyValue
	gone bool
}

// versionOverhead is about what a version takes besides key and value.
const versionOverhead = 64

func (v version) bytes() int64 { return int64(len(v.kv.Key)+len(v.kv.Value)) + versionOverhead }

// at returns the key-value that a key had at a revision, nil for none.
func at(history []version, revision int64) *mvccpb.KeyValue {
	i := sort.Search(len(history), func(i int) bool { return history[i].kv.ModRevision > revision })
	if i == 0 || history[i-1].gone {
		return nil
	}
	return history[i-1].kv
}

// get returns the key-value that a key has now, nil for none.
func (s *store) get(key string) *mvccpb.KeyValue {
	history, _ := s.keys.Get(key)
	return at(history, maxRevision)
}

const maxRevision = 1<<63 - 1

// scan visits the key-values of a range at a revision in the order of their
// keys, until visit returns false. An empty end means the one key, "\x00" all
// from the key on, as in etcd's protocol.
func (s *store) scan(key, end string, revision int64, visit func(*mvccpb.KeyValue) bool) {
	if end == "" {
		history, _ := s.keys.Get(key)
		if kv := at(history, revision); kv != nil {
			visit(kv)
		}
		return
	}
	s.keys.Ascend(key, func(k string, history []version) bool {
		if end != "\x00" && k >= end {
			return false
		}
		kv := at(history, revision)
		return kv == nil || visit(kv)
	})
}

// list returns the key-values of a range as they are now.
func (s *store) list(key, end string) (kvs []*mvccpb.KeyValue) {
	s.scan(key, end, maxRevision, func(kv *mvccpb.KeyValue) bool {
		kvs = append(kvs, kv)
		return true
	})
	return kvs
}

// put gives a key a value at a revision, which is the store's once the
// transaction it belongs to is done.
func (s *store) put(key, value []byte, lease, revision int64) *mvccpb.KeyValue {
	kv := &mvccpb.KeyValue{Key: key, Value: value, Lease: lease, CreateRevision: revision, ModRevision: revision, Version: 1}
	if before := s.get(string(key)); before != nil {
		kv.CreateRevision, kv.Version = before.CreateRevision, before.Version+1
	}
	s.add(version{kv: kv}, mvccpb.Event_PUT)
	return kv
}

// remove deletes a key that is there.
func (s *store) remove(kv *mvccpb.KeyValue, revision int64) {
	s.add(version{&mvccpb.KeyValue{Key: kv.Key, ModRevision: revision}, true}, mvccpb.Event_DELETE)
}

func (s *store) add(v version, event mvccpb.Event_EventType) {
	history, _ := s.keys.Get(string(v.kv.Key))
	s.keys.Set(string(v.kv.Key), append(history, v))
	s.events = append(s.events, &mvccpb.Event{Type: event, Kv: v.kv})
	s.bytes += v.bytes()
}

// since returns the events from a revision on.
func (s *store) since(revision int64) []*mvccpb.Event {
	return s.events[sort.Search(len(s.events), func(i int) bool { return s.events[i].Kv.ModRevision >= revision }):]
}

// compact forgets the versions that nobody sees who looks at a revision or
// later, and the events before it.
func (s *store) compact(revision int64) error {
	switch {
	case revision <= s.compacted:
		return rpctypes.ErrGRPCCompacted
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	}
	s.compacted = revision
	s.events = slices.Clone(s.since(revision))
	var forgotten []string
	s.keys.Scan(func(key string, history []version) bool {
		n := sort.Search(len(history), func(i int) bool { return history[i].kv.ModRevision > revision })
		if n > 0 && !history[n-1].gone {
			n-- // the version that is seen at the revision
		}
		for _, v := range history[:n] {
			s.bytes -= v.bytes()
		}
		if n == len(history) {
			forgotten = append(forgotten, key)
		} else if n > 0 {
			s.keys.Set(key, append([]version(nil), history[n:]...))
		}
		return true
	})
	for _, key := range forgotten {
		s.keys.Delete(key)
	}
	return nil
}
