package promote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// If any operation on etcd fails during a takeover, or two in a row, the standby still serves
// in the end, without help: with the whole state, and in a term on which the journal, the
// leader key and its own state agree.
func TestPromotionWhenTheNthOperationFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind  faultinject.Kind
		row   int
		least int // operations that failed
	}{
		{faultinject.QuestionLost, 1, 4}, {faultinject.QuestionLost, 2, 4},
		{faultinject.AnswerLost, 1, 4}, {faultinject.AnswerLost, 2, 4},
		{faultinject.NoSpace, 1, 3}, {faultinject.NoSpace, 2, 3}, // reads need none
	} {
		t.Run(fmt.Sprintf("%v, %d in a row", tc.kind, tc.row), func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t)
			failed := 0
			for run := range faultinject.Runs(tc.kind) {
				run.Row = tc.row
				t.Run(fmt.Sprint(run.I), func(t *testing.T) { promoteWithFault(t, etcd, run) })
				if run.Fault() != "" {
					failed++
				}
			}
			// At least the read of the leader and the head, the election, the records'
			// grant, and the first entry with the announcement.
			if failed < tc.least {
				t.Errorf("only %d operations failed, want %d at least", failed, tc.least)
			}
		})
	}
}

func promoteWithFault(t *testing.T, etcd *etcdtest.Cluster, run *faultinject.Run) {
	old := newPredecessor(t, etcd, fmt.Sprintf("run%d", run.I))
	w := newCluster(t, etcd)
	b := w.start("b", old.follow, func(c *promote.Config) {
		c.Client, c.Sessions = etcd.Client(t, run.DialOptions()...), etcd.Client(t, run.DialOptions()...)
	})
	w.promotable(b)
	old.put(t, "last")
	waitFor(t, "b to have it all", func() bool { return b.Status().Position == old.store.Position() })
	before := old.store.Position()

	run.OnFault = func() {
		if !b.serves() {
			return
		}
		if l, ok := old.leader(t); !ok || l.NodeID != "b" || l.State != promote.Serving {
			t.Errorf("%v: b serves, and the leader key says %+v, want b, serving", run, l)
		}
	}
	run.Arm()
	old.leave(t)
	w.serving(b)
	run.Disarm()

	leader, _ := old.leader(t)
	if leader.NodeID != "b" || leader.State != promote.Serving || leader.Term != b.Status().Leader.Term {
		t.Errorf("%v: the leader key says %+v, want b, serving, as b says: %+v", run, leader, b.Status().Leader)
	}
	for _, key := range old.keys {
		if err := b.get(key); err != nil {
			t.Errorf("D: %v: %s after the takeover: got %v, want it there", run, key, err)
		}
	}
	b.put("after")
	replayed := old.replay(t, func(at metadata.Position) bool { return at.Seq > before.Seq && at == b.Store().Position() })
	if got := replayed.Position(); got.Term != leader.Term {
		t.Errorf("%v: the journal is in term %d, want term %d of the leader key", run, got.Term, leader.Term)
	}
	if t.Failed() {
		t.Logf("%v: %+v", run, b.Status())
	}
}

// A node that cannot open a session for its election becomes a standby again, and reports that
// role, until it can.
func TestRoleBetweenElections(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	old := newPredecessor(t, etcd, "test")
	run := &faultinject.Run{Kind: faultinject.QuestionLost, I: 1, Row: 1 << 30}
	run.Skip = func(method string, _ int) bool { return method != "/etcdserverpb.Lease/LeaseGrant" }
	w := newCluster(t, etcd)
	b := w.start("b", old.follow, func(c *promote.Config) { c.Sessions = etcd.Client(t, run.DialOptions()...) })
	w.promotable(b)
	waitFor(t, "a session in advance", func() bool { return len(spares(t, old.client)) > 0 })
	run.Arm()
	revokeSpares(t, old.client)
	old.leave(t)
	waitFor(t, "an election", func() bool { return run.Fault() != "" })
	waitFor(t, "the role of a standby", func() bool { return b.Status().Self.Role == promote.Standby })
	run.Disarm()
	w.serving(b)
}

// spares returns the spare sessions of standbys: the leases without a key.
func spares(t *testing.T, client *clientv3.Client) []clientv3.LeaseID {
	t.Helper()
	leases, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []clientv3.LeaseID
	for _, lease := range leases.Leases {
		resp, err := client.TimeToLive(t.Context(), lease.ID, clientv3.WithAttachedKeys())
		if err != nil {
			t.Fatal(err)
		}
		if resp.TTL > 0 && len(resp.Keys) == 0 {
			ids = append(ids, lease.ID)
		}
	}
	return ids
}

func revokeSpares(t *testing.T, client *clientv3.Client) {
	t.Helper()
	for _, id := range spares(t, client) {
		if _, err := client.Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

// A standby whose spare session etcd has lost is elected with a new one.
func TestElectionWithoutTheSpareSession(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	old := newPredecessor(t, etcd, "test")
	w := newCluster(t, etcd)
	b := w.start("b", old.follow, func(c *promote.Config) { c.SessionTTL = time.Minute })
	w.promotable(b)
	waitFor(t, "a session in advance", func() bool { return len(spares(t, old.client)) > 0 })
	revokeSpares(t, old.client)
	old.leave(t)
	waitFor(t, "a promoted standby", b.serves) // by the same campaign: the next one would be 6 s later
}

// A predecessor is a primary of term 1 that ends without a resignation.
type predecessor struct {
	client *clientv3.Client
	layout journal.Layout
	begin  int64 // etcd's revision before there was a journal
	store  *metadata.Store
	log    *journal.EtcdLog
	writer *journal.Writer
	now    func() metadata.Time
	keys   []string
}

// claim writes the leader key, and returns the election.
func (p *predecessor) claim(t *testing.T, l promote.Leader) journal.Election {
	t.Helper()
	l.Election = journal.NewElection()
	value, err := json.Marshal(l)
	if err != nil {
		t.Error(err)
		return ""
	}
	lease, err := p.client.Grant(t.Context(), 600) // a key that no lease ends is deleted after a while
	if err == nil {
		_, err = p.client.Put(t.Context(), p.layout.Leader(), string(value), clientv3.WithLease(lease.ID))
	}
	if err != nil {
		t.Error(err)
	}
	return l.Election
}

func newPredecessor(t *testing.T, etcd *etcdtest.Cluster, cluster string) *predecessor {
	t.Helper()
	boot := clock.Boot()
	p := &predecessor{
		client: etcd.Client(t), layout: journal.NewLayout("/understudy", cluster),
		store: metadata.New(metadata.Options{}), now: metadata.NewClock(boot, 0),
	}
	election := p.claim(t, promote.Leader{NodeID: "old", RPC: "old", Term: 1, State: promote.Serving})
	now, err := p.client.Get(t.Context(), p.layout.Leader())
	if err != nil {
		t.Fatal(err)
	}
	p.begin = now.Header.Revision
	p.log = journal.NewEtcdLog(p.client, p.layout, election, journal.Cursor{}, time.Minute, boot)
	p.writer = journal.NewWriter(journal.WriterConfig{
		Store: p.store, Queue: journal.NewQueue(p.store, 1<<20), Log: p.log, Term: 1, Hold: params.HoldTime(), Now: p.now, Elapsed: boot,
	})
	p.store.StartIDs(1)
	p.commit(t, &metadata.TermStart{Term: 1, Params: params})
	mount, err := p.store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 30, Endpoint: "a:1", Client: segment.ClientID{1}})
	if err != nil {
		t.Fatal(err)
	}
	p.commit(t, mount)
	for _, key := range keys("k", 5) {
		p.put(t, key)
	}
	return p
}

func (p *predecessor) commit(t *testing.T, c metadata.Change) {
	t.Helper()
	if err := p.writer.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func (p *predecessor) put(t *testing.T, key string) {
	t.Helper()
	put := &metadata.Put{Tenant: metadata.DefaultTenant, Key: key, Client: segment.ClientID{1}, Size: 100, Replicas: 1}
	start, _, _, err := p.store.PreparePutStart(put, p.now())
	if err != nil {
		t.Fatal(err)
	}
	p.commit(t, start)
	end, _, err := p.store.PreparePutEnd(metadata.PutRef{
		Tenant: metadata.DefaultTenant, Key: key, Client: segment.ClientID{1}, Selector: metadata.SelectMemory,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.commit(t, end)
	p.keys = append(p.keys, key)
}

// follow makes a node a standby of the predecessor.
func (p *predecessor) follow(c *promote.Config) {
	c.Layout, c.Peers, c.MayStartEmpty = p.layout, p, false
}

// Fetch sends the state; the predecessor commits nothing meanwhile.
func (p *predecessor) Fetch(_ context.Context, _ string, add func([]byte) error) (journal.Cursor, error) {
	for i := range metadata.SnapshotParts {
		part, _ := p.store.AppendSnapshotPart(nil, i)
		if err := add(part); err != nil {
			return journal.Cursor{}, err
		}
	}
	return p.log.Tip(), nil
}

// WaitApplied is for handovers, of which there are none here.
func (p *predecessor) WaitApplied(context.Context, promote.NodeInfo, metadata.Seq) error {
	return errors.New("nobody to wait for")
}

// leave deletes the leader key, as etcd does when a session ends.
func (p *predecessor) leave(t *testing.T) {
	t.Helper()
	if _, err := p.client.Delete(t.Context(), p.layout.Leader()); err != nil {
		t.Fatal(err)
	}
}

// leader returns what the leader key says, false if there is none.
func (p *predecessor) leader(t *testing.T) (l promote.Leader, ok bool) {
	t.Helper()
	return leaderKey(t, p.client, p.layout)
}

// leaderKey returns what the leader key says.
func leaderKey(t *testing.T, client *clientv3.Client, layout journal.Layout) (l promote.Leader, ok bool) {
	t.Helper()
	resp, err := client.Get(t.Context(), layout.Leader())
	if err == nil && len(resp.Kvs) == 1 {
		err = json.Unmarshal(resp.Kvs[0].Value, &l)
	}
	if err != nil {
		t.Errorf("reading the leader key: got %v, want no error", err)
		return l, false
	}
	return l, len(resp.Kvs) == 1
}

// replay applies the journal from its beginning to an empty state, until that reaches a
// position.
func (p *predecessor) replay(t *testing.T, until func(metadata.Position) bool) *metadata.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := replay{store: metadata.New(metadata.Options{}), until: until}
	reader := &journal.Reader{Client: p.client, Layout: p.layout, Codec: codec}
	if err := reader.Read(ctx, journal.Cursor{Revision: p.begin}, r); !errors.Is(err, errThere) {
		t.Fatalf("replaying the journal: got %v at %+v, want it to reach the position", err, r.store.Position())
	}
	return r.store
}

// A replay follows the journal, and compares the digests in its heads.
type replay struct {
	store *metadata.Store
	until func(metadata.Position) bool
}

var errThere = errors.New("the replay has come to its end")

func (r replay) Commit(c *metadata.Commit, at journal.Cursor) error {
	if p := r.store.Position(); p.Seq > 0 && at.Head.Checked == p.Seq && at.Head.Digest != p.Digest {
		return fmt.Errorf("S: the state at %d: got digest %v, want %v as in the head", p.Seq, p.Digest, at.Head.Digest)
	}
	p, err := r.store.Apply(c, nil)
	if err == nil && r.until(p) {
		return errThere
	}
	return err
}

func (r replay) Changed(string) {}

func (r replay) Founded(journal.Cursor) error { return nil }

// Standing is not asked for: the journal is never lost here.
func (p *predecessor) Standing(context.Context, string) (promote.Standing, error) {
	return promote.Standing{}, errors.New("nobody answers")
}
