package metadata_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A tester is the common interface of testing.T and rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

var params = metadata.Params{
	LeaseTTL:       10 * time.Second,
	DiscardTimeout: 30 * time.Second,
	ReleaseTimeout: 600 * time.Second,
}

func decodeObjectEvent(b []byte) (metadata.Change, error) {
	return metadata.DecodeObjectEvent(b, eviction.NewCutoff)
}

// A cluster is a primary and a follower with a journal that never fails
// between them: each commit goes through its encoding.
type cluster struct {
	t        tester
	primary  *metadata.Store
	follower *metadata.Store
	now      metadata.Time // the primary's clock
	term     metadata.Term
	seq      metadata.Seq
	log      []*metadata.Commit // as decoded, from sequence 1
	options  metadata.Options   // of all stores
	rules    metadata.Rules     // of all terms; 0 for the newest
}

func newCluster(t tester) *cluster {
	return newClusterWith(t, params)
}

func newClusterWith(t tester, p metadata.Params) *cluster {
	t.Helper()
	return newClusterOf(t, metadata.Options{}, p)
}

func newClusterOf(t tester, options metadata.Options, p metadata.Params) *cluster {
	t.Helper()
	c := &cluster{t: t, primary: metadata.New(options), follower: metadata.New(options), now: 1000, options: options}
	c.startTerm(p, 0)
	return c
}

// startTerm makes c.primary a primary of the next term.
func (c *cluster) startTerm(p metadata.Params, guard time.Duration) {
	c.t.Helper()
	c.term++
	c.primary.StartIDs(c.term)
	c.must(c.commit(&metadata.TermStart{Term: c.term, Params: p, Guard: guard}, &metadata.UseRules{Version: cmp.Or(c.rules, metadata.NewestRules)}))
}

// takeOver promotes the follower; the old primary is lost. The new follower is
// made from the journal.
func (c *cluster) takeOver(guard time.Duration) {
	c.t.Helper()
	c.primary = c.follower
	c.now = c.primary.Position().Time
	c.follower = c.replay()
	c.startTerm(c.primary.Params(), guard)
}

func (c *cluster) replay() *metadata.Store {
	c.t.Helper()
	s := metadata.New(c.options)
	for _, commit := range c.log {
		c.apply(s, c.recode(commit))
	}
	return s
}

// commit makes changes durable and applies them on both nodes, which must
// agree afterwards. It returns the answers.
func (c *cluster) commit(changes ...metadata.Change) []error {
	c.t.Helper()
	c.seq++
	if len(changes) == 0 && c.primary.ReleasesAt(c.now) { // as the writer does
		changes = append(changes, leasesync.NewFiller())
	}
	commit := &metadata.Commit{Seq: c.seq, Term: c.term, Time: c.now, Changes: changes}
	c.log = append(c.log, c.recode(commit))
	answers := make([]error, len(changes))
	position, err := c.primary.Apply(commit, answers)
	if err != nil {
		c.t.Fatalf("applying a commit on the primary: got %v, want no error", err)
	}
	if got := c.apply(c.follower, c.recode(commit)); got != position {
		c.t.Fatalf("S: after %T...: the follower is at %+v, want it at the primary's position, %+v", first(changes), got, position)
	}
	return answers
}

func first(changes []metadata.Change) metadata.Change {
	if len(changes) == 0 {
		return nil
	}
	return changes[0]
}

func (c *cluster) apply(s *metadata.Store, commit *metadata.Commit) metadata.Position {
	c.t.Helper()
	position, err := s.Apply(commit, nil)
	if err != nil {
		c.t.Fatalf("applying a commit on a follower: got %v, want no error", err)
	}
	return position
}

// recode returns a commit as a follower decodes it.
func (c *cluster) recode(commit *metadata.Commit) *metadata.Commit {
	c.t.Helper()
	out := *commit
	out.Changes = nil
	for _, change := range commit.Changes {
		b := metadata.Encode(nil, change)
		if len(b) > metadata.MaxChangeBytes {
			c.t.Fatalf("%T takes %d bytes, want at most %d", change, len(b), metadata.MaxChangeBytes)
		}
		decode := map[metadata.Stream]func([]byte) (metadata.Change, error){
			metadata.LeaseRenewals: leasesync.Decode,
			metadata.ObjectEvents:  decodeObjectEvent,
			metadata.DeleteEvents:  deleteevents.Decode,
		}[change.Stream()]
		decoded, err := decode(b)
		if err != nil {
			c.t.Fatalf("decoding %T: got %v, want no error", change, err)
		}
		out.Changes = append(out.Changes, decoded)
	}
	return &out
}

func (c *cluster) must(answers []error) {
	c.t.Helper()
	for _, err := range answers {
		if err != nil {
			c.t.Fatalf("the answer to a change: got %v, want no error", err)
		}
	}
}

func (c *cluster) pass(d time.Duration) { c.now = c.now.Add(d) }

func client(n byte) segment.ClientID { return segment.ClientID{15: n} }

// mount mounts size bytes under a name; the owner is the client of the same
// number as the segment.
func (c *cluster) mount(n byte, name string, size uint64) segment.ID {
	c.t.Helper()
	return c.mountOf(n, n, name, size)
}

// mountOf mounts segment n of an owner.
func (c *cluster) mountOf(owner, n byte, name string, size uint64) segment.ID {
	c.t.Helper()
	spec := segment.Spec{
		ID: segment.ID{15: n}, Name: name, Base: uint64(n) << 32, Size: size,
		Endpoint: name + ":1", Protocol: "tcp", Client: client(owner),
	}
	e, err := c.primary.PrepareMount(spec)
	if err != nil {
		c.t.Fatalf("preparing a mount of segment %d: got %v, want no error", n, err)
	}
	if e != nil {
		c.must(c.commit(e))
	}
	return spec.ID
}

func (c *cluster) unmount(id segment.ID) {
	c.t.Helper()
	number, ok := c.primary.FindSegment(id)
	if !ok {
		c.t.Fatalf("unmounting segment %v: got that it is not mounted, want that it is", id)
	}
	c.must(c.commit(&deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{number}}))
}

// preparePut decides a put of a key by client 1 with one replica of 100 bytes,
// changed by the options.
func (c *cluster) preparePut(key string, options ...func(*metadata.Put)) (*metadata.PutStart, error) {
	c.t.Helper()
	put := metadata.Put{Tenant: metadata.DefaultTenant, Key: key, Client: client(1), Size: 100, Replicas: 1}
	for _, o := range options {
		o(&put)
	}
	e, repeated, wait, err := c.primary.PreparePutStart(&put, c.now)
	if wait != nil || repeated != nil {
		return nil, fmt.Errorf("key %s is busy or reserved already", key)
	}
	return e, err
}

func (c *cluster) putStart(key string, options ...func(*metadata.Put)) error {
	c.t.Helper()
	e, err := c.preparePut(key, options...)
	if err != nil {
		return err
	}
	return c.commit(e)[0]
}

func (c *cluster) putRef(key string) metadata.PutRef {
	return metadata.PutRef{Tenant: metadata.DefaultTenant, Key: key, Client: client(1), Selector: metadata.SelectMemory}
}

func (c *cluster) putEnd(key string) error { c.t.Helper(); return c.putEndAs(c.putRef(key)) }

func (c *cluster) putEndAs(ref metadata.PutRef) error {
	c.t.Helper()
	e, wait, err := c.primary.PreparePutEnd(ref, nil)
	if wait != nil {
		c.t.Fatalf("ending the put of %s: got that the key is busy, want not", ref.Key)
	}
	if e == nil {
		return err
	}
	return c.commit(e)[0]
}

func (c *cluster) revokeAs(ref metadata.PutRef) error {
	c.t.Helper()
	r, wait, err := c.primary.PreparePutRevoke(ref)
	switch {
	case wait != nil:
		c.t.Fatalf("revoking the put of %s: got that the key is busy, want not", ref.Key)
	case err != nil:
		return err
	case r.Removal != nil:
		return c.commit(&deleteevents.Event{Type: deleteevents.PutRevoke, Removals: []*metadata.Removal{r.Removal}})[0]
	case r.Partial != nil:
		return c.commit(r.Partial)[0]
	}
	return nil
}

// put puts a whole object.
func (c *cluster) put(key string, options ...func(*metadata.Put)) {
	c.t.Helper()
	if err := c.putStart(key, options...); err != nil {
		c.t.Fatalf("put start of %s: got %v, want no error", key, err)
	}
	if err := c.putEnd(key); err != nil {
		c.t.Fatalf("put end of %s: got %v, want no error", key, err)
	}
}

func (c *cluster) get(key string) (metadata.ReplicaList, error) {
	c.t.Helper()
	list, wait, err := leases(c.primary).GetReplicaList(metadata.DefaultTenant, key, c.now)
	if wait != nil {
		c.t.Fatalf("get of %s: got that the key is busy, want not", key)
	}
	return list, err
}

// read renews a lease, if there is an object to read.
func (c *cluster) read(key string) {
	c.t.Helper()
	_, _ = c.get(key)
}

func (c *cluster) exists(key string) bool {
	return leases(c.primary).Exists(metadata.DefaultTenant, key, c.now)
}

func (c *cluster) remove(key string, force bool) error {
	c.t.Helper()
	e, wait, err := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: metadata.DefaultTenant, Key: key, Force: force}, c.now)
	if wait != nil {
		c.t.Fatalf("removing %s: got that the key is busy, want not", key)
	}
	if e == nil {
		return err
	}
	return c.commit(e)[0]
}

// scan journals the renewals that are marked.
func (c *cluster) scan() {
	c.t.Helper()
	c.must(c.commit(marked(c.primary)...))
}

// marked returns the renewals that are marked, as changes.
func marked(s *metadata.Store) (changes []metadata.Change) {
	_ = leasesync.EachRound(s, 1<<30, func(renewals []leasesync.Renewal) error {
		changes = leasesync.Pack(renewals)
		return nil
	})
	return changes
}

// leases grants leases on a store.
func leases(s *metadata.Store) *leasesync.Leases {
	return leasesync.New(leasesync.Leases{Store: s, Counters: new(leasesync.Counters)})
}

// evict runs one pass and returns how many objects it evicted.
func (c *cluster) evict(b eviction.Bounds) int {
	c.t.Helper()
	pass := eviction.Select(c.primary, b)
	if pass == nil {
		return 0
	}
	before := c.primary.Stats().Evicted
	if len(pass.NearMisses) > 0 {
		c.must(c.commit(leasesync.Pack(pass.NearMisses)...))
	}
	c.must(c.commit(pass.Cutoff))
	return int(c.primary.Stats().Evicted - before)
}

func wantKind(t *testing.T, what string, err error, want errs.Kind) {
	t.Helper()
	if got := errs.KindOf(err); got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}

// load makes a follower from a snapshot of s, with the commits that follow its
// beginning from the log.
func (c *cluster) load(parts [][]byte) (*metadata.Store, error) {
	c.t.Helper()
	l := metadata.NewLoader(c.options)
	for _, part := range parts {
		if err := l.Add(part); err != nil {
			return nil, err
		}
	}
	for seq := l.Start() + 1; seq <= l.End(); seq++ {
		if err := l.Apply(c.recode(c.log[seq-1])); err != nil {
			return nil, err
		}
	}
	return l.Finish()
}

func softPin(p *metadata.Put) { p.SoftPin = 30 * time.Minute }
func hardPin(p *metadata.Put) { p.HardPin = true }

func keys(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}
