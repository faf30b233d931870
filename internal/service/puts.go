package service

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A SoftPinAction says what a put does about the object's soft pin.
type SoftPinAction uint8

// The actions, as in the C++ master.
const (
	SoftPinPreserve SoftPinAction = iota // keep what there is: none, for a new object
	SoftPinEnable                        // pin for the given time, or the default one
	SoftPinDisable                       // no pin
)

// A PutConfig says how objects are placed and pinned.
type PutConfig struct {
	Replicas   int      // memory replicas wanted, at least 1; one is enough
	Preferred  []string // segment names to try first, in order, at most MaxPreferred
	SoftPin    SoftPinAction
	SoftPinTTL *time.Duration // with SoftPinEnable only; nil for the default
	HardPin    bool
	SameNode   bool // later items of a batch prefer the segment of the first
	DataType   uint8
	HostID     string // of the writer, for LocalFirst and SameNode; empty: where it has mounted memory
	// Grouped says that the call names the group of each item: an item without one makes
	// an object in no group. Otherwise an upsert keeps the group of the object.
	Grouped bool
	// Upsert replaces what is under the key, whatever it is, instead of failing with
	// ObjectExists. The key is unreadable until PutEnd.
	Upsert bool
}

// A PutItem is one object to put.
type PutItem struct {
	Key   string
	Size  uint64 // bytes, at least 1
	Group string
}

// A PutRequest asks for the reservation of objects.
type PutRequest struct {
	Tenant  string
	Client  segment.ClientID
	Request uint64 // item i counts as the single call of request Request+i; 0 for none
	Config  PutConfig
	Peer    string // that the keys count for, see package share
	// Unnumbered says that the caller's protocol has no request ids: see
	// metadata.Put. For each reservation that it could not deliver, the front end
	// calls Store.Abandon.
	Unnumbered bool
}

// A Reservation is where the writer of an object is to put its bytes.
type Reservation struct {
	ID       metadata.ObjectID
	Replicas []metadata.Descriptor
}

// PutStart reserves one object. Errors: InvalidParams, InvalidKey,
// ObjectExists, NoAvailableHandle; for an upsert also ObjectHasTask and ReplicaBusy;
// with Tenants TenantNotRegistered and TenantQuotaExceeded.
func (m *Master) PutStart(ctx context.Context, p PutRequest, it PutItem) (Reservation, error) {
	if err := m.Fence(ctx); err != nil {
		return Reservation{}, err
	}
	got, failed, err := m.putStart(ctx, "PutStart", p, []PutItem{it})
	if err != nil {
		return Reservation{}, m.Counters.done(OpPutStart, err)
	}
	return got[0], m.Counters.done(OpPutStart, failed[0])
}

// BatchPutStart is PutStart for many objects, each with an error of its own.
func (m *Master) BatchPutStart(ctx context.Context, p PutRequest, items []PutItem) ([]Reservation, []error, error) {
	if err := m.begin(ctx, "BatchPutStart", len(items)); err != nil {
		return nil, nil, m.Counters.done(OpBatchPutStart, err)
	}
	got, failed, err := m.putStart(ctx, "BatchPutStart", p, items)
	return got, failed, m.Counters.doneBatch(OpBatchPutStart, failed, err)
}

func (m *Master) putStart(ctx context.Context, op string, p PutRequest, items []PutItem) ([]Reservation, []error, error) {
	c, err := m.newPutCall(op, p, items)
	if err != nil {
		return nil, nil, err
	}
	outcomes := m.commit(ctx, len(items), m.putBytes(p, items), c.reserve)
	c.retryOverQuota(ctx, outcomes)
	return c.reserved(outcomes), errorsOf(outcomes), nil
}

// A putCall is a PutStart or a BatchPutStart under way.
type putCall struct {
	m     *Master
	op    string
	p     PutRequest
	items []PutItem
	got   []Reservation // by item, as far as they are made

	before    []int // what the function of that name returns; nil until it is needed
	pin       time.Duration
	preferred []string // segments that are tried first
	refused   error    // for objects with new keys, if these would be too many; else nil
}

// newPutCall checks what the objects of a call have in common.
func (m *Master) newPutCall(op string, p PutRequest, items []PutItem) (*putCall, error) {
	pin, err := m.softPin(op, p.Config)
	if err != nil {
		return nil, err
	}
	if p.Config.Replicas < 1 || p.Config.Replicas > metadata.MaxReplicas {
		return nil, errs.New(errs.InvalidParams, op, "replica_num is %d; ask for 1 to %d", p.Config.Replicas, metadata.MaxReplicas)
	}
	if n := len(p.Config.Preferred); n > MaxPreferred {
		return nil, errs.New(errs.InvalidParams, op, "preferred_segments has %d names, at most %d are possible; name only those to try first", n, MaxPreferred)
	}
	preferred := p.Config.Preferred
	if (m.LocalFirst || p.Config.SameNode) && p.Config.Replicas == 1 {
		preferred = append(slices.Clip(preferred), m.Store.NamesOnHost(p.Client, p.Config.HostID)...)
	}
	return &putCall{
		m: m, op: op, p: p, items: items, got: make([]Reservation, len(items)),
		pin: pin, preferred: distinct(preferred), refused: m.admitKeys(op, p, items),
	}, nil
}

// reserve decides an item: it prepares its reservation, finds the one that an earlier
// try of the same call has made, or has it wait.
func (c *putCall) reserve(i int, now metadata.Time) (metadata.Change, <-chan struct{}, error) {
	it, config := c.items[i], &c.p.Config
	if err := checkPut(c.op, c.p.Tenant, it); err != nil {
		return nil, nil, err
	}
	put, asOf := c.put(i), c.m.Store.Time()
	e, repeated, wait, err := c.m.Store.PreparePutStart(&put, now)
	if put.Own = c.ownOf(i, err); put.Own != 0 {
		e, repeated, wait, err = c.m.Store.PreparePutStart(&put, now)
	}
	c.m.noteAllocation(e, err, config.Replicas, it.Size, asOf)
	switch {
	case repeated != nil:
		c.got[i] = Reservation{repeated.ID, repeated.Replicas}
		return nil, nil, nil
	case e == nil:
		return nil, wait, err
	}
	c.got[i].ID = e.ID
	if config.SameNode && i == 0 {
		c.preferred = []string{e.Descriptors()[0].Segment}
	}
	return e, nil, nil
}

// retryOverQuota makes those puts again that broke their tenant's quota, after objects of
// the tenant were evicted for them.
func (c *putCall) retryOverQuota(ctx context.Context, outcomes []outcome) {
	m := c.m
	if !m.Tenants {
		return
	}
	var over []int
	wanted := func(quota uint64) (bytes uint64, _ metadata.ObjectID) {
		over = over[:0]
		for i, o := range outcomes {
			if n := metadata.MemoryOf(c.items[i].Size, uint64(c.p.Config.Replicas)); o.overQuota() && n <= quota {
				over, bytes = append(over, i), min(bytes+n, quota)
			}
		}
		return bytes, 0
	}
	m.evictions.Retry(ctx, c.p.Tenant, wanted, func() {
		again := func(k int, now metadata.Time) (metadata.Change, <-chan struct{}, error) {
			return c.reserve(over[k], now)
		}
		for k, o := range m.commit(ctx, len(over), m.putBytes(c.p, c.items), again) {
			outcomes[over[k]] = o
		}
	})
	for _, o := range outcomes {
		if o.overQuota() {
			m.Counters.Tenants.rejected(c.p.Tenant)
		}
	}
}

func (c *putCall) put(i int) metadata.Put {
	it, p, config := c.items[i], &c.p, &c.p.Config
	return metadata.Put{
		Tenant: p.Tenant, Key: it.Key, Client: p.Client, Size: it.Size, Request: itemRequest(p.Request, i),
		Replicas: config.Replicas, Preferred: c.preferred, DiskPath: c.m.diskPath(it.Key),
		SoftPin: c.pin, HardPin: config.HardPin, Group: it.Group, Grouped: config.Grouped, DataType: config.DataType,
		Unnumbered: p.Unnumbered, Upsert: config.Upsert, KeepSoftPin: config.SoftPin == SoftPinPreserve,
		Metered: bool(c.m.Tenants), Peer: p.Peer, Refused: c.refused,
	}
}

// reserved returns the reservations that are in the journal.
func (c *putCall) reserved(outcomes []outcome) []Reservation {
	for i, o := range outcomes {
		if o.err != nil {
			if c.p.Unnumbered && errs.KindOf(o.err) == errs.Unresolved {
				c.m.Store.Abandon(c.p.Tenant, c.items[i].Key, c.got[i].ID) // the caller will not learn of it
			}
			c.got[i] = Reservation{}
		} else if e, ok := o.change.(*metadata.PutStart); ok {
			c.got[i].Replicas = e.Descriptors()
		}
	}
	return c.got
}

// ownOf returns the reservation that an earlier item of the batch has made under the key of
// item i, if item i failed with ReplicaBusy; 0 for none.
func (c *putCall) ownOf(i int, err error) metadata.ObjectID {
	if errs.KindOf(err) != errs.ReplicaBusy || len(c.items) == 1 {
		return 0
	}
	if c.before == nil {
		c.before = before(c.items)
	}
	if k := c.before[i]; k >= 0 {
		return c.got[k].ID
	}
	return 0
}

// before returns, for each item, the place of the last one before it that has its key, -1
// for none.
func before(items []PutItem) []int {
	places, last := make([]int, len(items)), make(map[string]int, len(items))
	for i := range items {
		k, found := last[items[i].Key]
		if !found {
			k = -1
		}
		places[i], last[items[i].Key] = k, i
	}
	return places
}

// putBytes returns about how many bytes the largest PutStart of some items takes in the
// journal.
func (m *Master) putBytes(p PutRequest, items []PutItem) int {
	longest := 0
	for _, it := range items {
		longest = max(longest, len(it.Key)+len(it.Group)+len(m.diskPath(it.Key)))
	}
	return 128 + len(p.Tenant) + longest + 16*p.Config.Replicas
}

// itemRequest returns the request id that item i of a batch counts as.
func itemRequest(request uint64, i int) uint64 {
	if request == 0 {
		return 0
	}
	return request + uint64(i)
}

func checkPut(op, tenant string, it PutItem) error {
	switch {
	case it.Key == "":
		return errs.New(errs.InvalidParams, op, "the key is empty")
	case it.Size == 0:
		return errs.New(errs.InvalidParams, op, "the object has 0 bytes; put at least 1")
	case len(it.Group) > metadata.MaxNameBytes:
		return errs.New(errs.InvalidParams, op, "the group's name has %d bytes, at most %d are possible", len(it.Group), metadata.MaxNameBytes)
	}
	return checkKey(op, tenant, it.Key)
}

// distinct returns names without repetitions, so that a full host is tried only once
// for each object.
func distinct(names []string) []string {
	if len(names) <= fewNames && !repeats(names) {
		return names
	}
	seen := make(map[string]bool, len(names))
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}

// fewNames are compared with each other, which takes no memory.
const fewNames = 8

func repeats(names []string) bool {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return true
		}
	}
	return false
}

// softPin returns how long a put pins its objects softly.
func (m *Master) softPin(op string, c PutConfig) (time.Duration, error) {
	if c.SoftPin != SoftPinEnable {
		if c.SoftPinTTL != nil {
			return 0, errs.New(errs.InvalidParams, op, "a soft pin TTL goes with the action ENABLE only")
		}
		return 0, nil
	}
	if c.SoftPinTTL == nil {
		return m.SoftPinTTL, nil
	}
	if ttl := *c.SoftPinTTL; ttl < 0 || ttl > m.MaxSoftPin {
		return 0, errs.New(errs.InvalidParams, op, "the soft pin TTL is %v; give at most %v; 0 pins nothing", ttl, m.MaxSoftPin)
	}
	return *c.SoftPinTTL, nil
}

// forKeys is the size for AllocationFailed of a put that found no room for its key: no
// freed memory is enough for that.
const forKeys = math.MaxUint64

// noteAllocation counts what became of an allocation. One that failed asks for
// an eviction pass, unless no pass would help: there are not even enough
// segments for it (behaviours 1.2, check 55), or none is large enough. A client
// that repeats such a put would empty the cache.
func (m *Master) noteAllocation(e *metadata.PutStart, err error, wanted int, size uint64, asOf metadata.Time) {
	switch refused, is := errors.AsType[*refusedError](err); {
	case is:
		if refused.evictionHelps {
			m.AllocationFailed(forKeys, asOf)
		}
	case errs.KindOf(err) == errs.NoAvailableHandle:
		m.Counters.AllocationFailures.Add(1)
		if !m.Store.HasRecordRoom() {
			m.AllocationFailed(forKeys, asOf)
		} else if m.Store.CouldHold(size, wanted) {
			m.AllocationFailed(size, asOf)
		}
	case e != nil:
		m.Counters.reserved(size)
		if len(e.Placements) < wanted {
			m.Counters.PartialAllocations.Add(1)
		}
	}
}

// diskPath returns the file of an object's disk replica, empty if there is
// none. Two levels of directories keep each of them small.
func (m *Master) diskPath(key string) string {
	dir := m.Fsdir()
	if dir == "" {
		return ""
	}
	h := fmt.Sprintf("%016x", xxh3.HashString(key))
	name := path.Join(dir, h[:2], h[2:4], escapeFile(key))
	if len(name) > metadata.MaxPathBytes-64 { // a file name that no file system takes, with the object's id
		return ""
	}
	return name
}

// A UpdateItem names a put that its writer goes on with.
type UpdateItem struct {
	Key      string
	ID       metadata.ObjectID // as PutStart gave it, 0 if not known
	Checksum *uint64           // of the bytes, for PutEnd; nil for none
}

// A UpdateRequest ends or revokes puts.
type UpdateRequest struct {
	Tenant   string
	Client   segment.ClientID
	Request  uint64 // as in PutRequest
	Selector metadata.Selector
}

func (u UpdateRequest) ref(r UpdateItem, i int) metadata.PutRef {
	return metadata.PutRef{
		Tenant: u.Tenant, Key: r.Key, Client: u.Client, ID: r.ID, Selector: u.Selector, Request: itemRequest(u.Request, i),
	}
}

// PutEnd makes an object's replicas readable. Repeated, it is no error. Errors:
// ObjectNotFound, IllegalClient, InvalidWrite.
func (m *Master) PutEnd(ctx context.Context, u UpdateRequest, r UpdateItem) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	return m.Counters.done(OpPutEnd, m.putEnds(ctx, "PutEnd", u, []UpdateItem{r})[0])
}

// BatchPutEnd is PutEnd for many objects, each with an error of its own.
func (m *Master) BatchPutEnd(ctx context.Context, u UpdateRequest, refs []UpdateItem) ([]error, error) {
	return m.batch(ctx, OpBatchPutEnd, "BatchPutEnd", len(refs), func() []error { return m.putEnds(ctx, "BatchPutEnd", u, refs) })
}

func (m *Master) putEnds(ctx context.Context, op string, u UpdateRequest, refs []UpdateItem) []error {
	outcomes := m.commit(ctx, len(refs), 32, func(i int, _ metadata.Time) (metadata.Change, <-chan struct{}, error) {
		if err := checkKey(op, u.Tenant, refs[i].Key); err != nil {
			return nil, nil, err
		}
		return decided(m.Store.PreparePutEnd(u.ref(refs[i], i), refs[i].Checksum))
	})
	for _, o := range outcomes {
		if o.err == nil {
			m.offloads.ended(o.change)
		}
	}
	return errorsOf(outcomes)
}

// Fsdir returns the directory of disk replicas, empty unless both a root
// directory and a cluster id are set.
func (m *Master) Fsdir() string {
	if m.RootFSDir == "" || m.ClusterID == "" {
		return ""
	}
	return path.Join(m.RootFSDir, m.ClusterID)
}

// maxFileName bounds an escaped key: file systems allow names of 255 bytes.
const maxFileName = 200

// escapeFile makes a key a file name. A long one is cut and made unique again.
func escapeFile(key string) string {
	name := url.PathEscape(key)
	switch {
	case key == "." || key == "..":
		return "%" + hex.EncodeToString([]byte(key))
	case len(name) > maxFileName:
		sum := xxh3.HashString128(key).Bytes()
		return name[:maxFileName-33] + "~" + hex.EncodeToString(sum[:])
	}
	return name
}
