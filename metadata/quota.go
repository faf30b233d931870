package metadata

import (
	"cmp"
	"math/big"
	"math/bits"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// MaxQuotas bounds the tenants that have a quota. MaxQuota bounds one, in bytes.
const (
	MaxQuotas = 4096
	MaxQuota  = 1<<63 - 1
)

// quotas are the bytes of memory that tenants may use, and what they use. The
// quotas themselves are journaled. What a tenant is charged follows from its
// objects: the size of an object for each of its replicas in memory, reservations
// included. Replicas on a segment that was unmounted count until Sweep finds them.
type quotas struct {
	mu       sync.Mutex // guards all; only tenants.mu may be taken under it
	accounts []account  // by tenantID
	count    int        // of tenants with a quota
	capacity uint64     // bytes of the mounted segments
	stale    bool       // the effective quotas are to be computed anew
	more     bool       // journaled: SetQuota.More of the last one
}

type account struct {
	quota     uint64 // as it was set; 0 for a tenant that is not registered
	effective uint64 // its share of the memory that there is
	charged   int64  // bytes
	objects   int64
	prepared  int64 // bytes of puts and transfers that are prepared; primary only
	closing   bool  // the removal of the quota is prepared; primary only
}

// of returns a tenant's account. Needs the lock.
func (q *quotas) of(id tenantID) *account {
	for int(id) >= len(q.accounts) {
		q.accounts = append(q.accounts, account{})
	}
	return &q.accounts[id]
}

// charge notes that a tenant has more objects, or fewer, and bytes in memory.
func (q *quotas) charge(id tenantID, objects, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.of(id)
	a.objects += objects
	a.charged += bytes
}

// resize notes that a segment was mounted, or unmounted.
func (q *quotas) resize(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.capacity += uint64(bytes)
	q.stale = true
}

// refresh computes the effective quotas: those that were set, or shares of the memory if
// they add up to more. Needs the lock.
func (s *Store) refresh(q *quotas) {
	if !q.stale {
		return
	}
	q.stale = false
	total := new(big.Int)
	var ids []tenantID
	for i := range q.accounts {
		if a := &q.accounts[i]; a.quota > 0 {
			total.Add(total, new(big.Int).SetUint64(a.quota))
			ids = append(ids, tenantID(i))
		}
		q.accounts[i].effective = q.accounts[i].quota
	}
	capacity := new(big.Int).SetUint64(q.capacity)
	if total.Cmp(capacity) <= 0 {
		return
	}
	rests, left := make(map[tenantID]*big.Int, len(ids)), q.capacity
	for _, id := range ids {
		a := &q.accounts[id]
		share := new(big.Int).SetUint64(a.quota)
		rests[id] = new(big.Int)
		share.DivMod(share.Mul(share, capacity), total, rests[id])
		a.effective = share.Uint64()
		left -= a.effective
	}
	slices.SortFunc(ids, func(a, b tenantID) int {
		return cmp.Or(rests[b].Cmp(rests[a]), cmp.Compare(s.tenants.name(a), s.tenants.name(b)))
	})
	for _, id := range ids[:left] { // less than one byte for each
		q.accounts[id].effective++
	}
}

// A charge is what a prepared change holds of its tenant's quota until it is
// applied or aborted. A nil charge holds nothing.
type charge struct {
	q     *quotas
	id    tenantID
	bytes int64
	goes  int64 // bytes that it may hold only once what it replaces has gone
}

// raise makes the charge hold all bytes of the change. It comes before what the change
// replaces goes.
func (c *charge) raise() {
	if c == nil {
		return
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.q.of(c.id).prepared += c.goes
	c.bytes, c.goes = c.bytes+c.goes, 0
}

func (c *charge) release() {
	if c == nil {
		return
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.q.of(c.id).prepared -= c.bytes
}

// Registered returns TenantNotRegistered for a tenant without a quota.
func (s *Store) Registered(tenant string) error {
	s.quotas.mu.Lock()
	defer s.quotas.mu.Unlock()
	_, err := s.registered(tenant)
	return err
}

// registered needs the quotas' lock.
func (s *Store) registered(tenant string) (tenantID, error) {
	id, known := s.tenants.find(tenant)
	if !known || s.quotas.of(id).quota == 0 || s.quotas.of(id).closing {
		return 0, errs.TenantNotRegistered
	}
	return id, nil
}

// admit charges a tenant for replicas of a size, less the bytes that go with the same
// change. Errors: TenantNotRegistered, TenantQuotaExceeded.
func (s *Store) admit(tenant string, size, replicas, goes uint64) (*charge, error) {
	q := &s.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	id, err := s.registered(tenant)
	if err != nil {
		return nil, err
	}
	want := MemoryOf(size, replicas)
	goes = min(want, goes)
	want -= goes
	s.refresh(q)
	a := q.of(id)
	used := uint64(max(0, a.charged) + max(0, a.prepared))
	if want > 0 && (used > a.effective || want > a.effective-used) {
		return nil, errs.TenantQuotaExceeded
	}
	a.prepared += int64(want)
	return &charge{q, id, int64(want), int64(goes)}, nil
}

// MemoryOf returns the bytes that replicas of a size take, MaxQuota if it is more.
func MemoryOf(size, replicas uint64) uint64 {
	hi, lo := bits.Mul64(size, replicas)
	if hi > 0 {
		return MaxQuota
	}
	return min(lo, MaxQuota)
}

// memoryCharge returns what an object is charged for, in bytes.
func (o object) memoryCharge() (bytes uint64) {
	for i := range o.replicaCount() {
		if o.replicaAt(i).kind == Memory {
			bytes += o.size
		}
	}
	return bytes
}

// A TenantQuota is a tenant with its quota.
type TenantQuota struct {
	Tenant    string
	Requested uint64 // bytes, as it was set; 0 for a tenant that is not registered, and may not write
	Effective uint64 // bytes; less where all quotas together exceed the memory
	Charged   uint64 // bytes of replicas in memory, reservations and prepared puts included
}

// Registered reports whether the tenant has a quota.
func (t TenantQuota) Registered() bool { return t.Requested > 0 }

// Over reports whether the tenant has more than its quota: that was lowered, or
// memory was unmounted.
func (t TenantQuota) Over() bool { return t.Charged > t.Effective }

// Quotas returns the tenants that have a quota, or memory, by name.
func (s *Store) Quotas() []TenantQuota {
	q := &s.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	s.refresh(q)
	var list []TenantQuota
	for i := range q.accounts {
		if t := q.info(tenantID(i)); t.Registered() || t.Charged > 0 {
			t.Tenant = s.tenants.name(tenantID(i))
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b TenantQuota) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return list
}

// QuotaCount returns how many tenants Quotas would return.
func (s *Store) QuotaCount() (n int) {
	q := &s.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.accounts {
		if t := q.info(tenantID(i)); t.Registered() || t.Charged > 0 {
			n++
		}
	}
	return n
}

// Quota returns one tenant of Quotas, false if it is not there.
func (s *Store) Quota(tenant string) (TenantQuota, bool) {
	id, known := s.tenants.find(tenant)
	if !known {
		return TenantQuota{}, false
	}
	q := &s.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	s.refresh(q)
	t := q.info(id)
	t.Tenant = tenant
	return t, t.Registered() || t.Charged > 0
}

// info needs the lock.
func (q *quotas) info(id tenantID) TenantQuota {
	a := q.of(id)
	return TenantQuota{Requested: a.quota, Effective: a.effective, Charged: uint64(max(0, a.charged) + max(0, a.prepared))}
}

// QuotaCapacity returns the bytes of all mounted segments, which the quotas share.
func (s *Store) QuotaCapacity() uint64 {
	s.quotas.mu.Lock()
	defer s.quotas.mu.Unlock()
	return s.quotas.capacity
}

// HasQuotas reports whether any tenant has a quota.
func (s *Store) HasQuotas() bool {
	s.quotas.mu.Lock()
	defer s.quotas.mu.Unlock()
	return s.quotas.count > 0
}

// MoreQuotas reports whether more quotas were to follow the one that was set last.
func (s *Store) MoreQuotas() bool {
	s.quotas.mu.Lock()
	defer s.quotas.mu.Unlock()
	return s.quotas.more
}

// PrepareSetQuota decides a tenant's quota in bytes, or its end for 0. Until an end is
// applied or aborted, the tenant gets no memory.
//
// Errors: InvalidParams for more than MaxQuota, and for more than MaxQuotas tenants;
// ObjectNotFound for the end of a quota that is not there, TenantNotEmpty while its
// tenant has objects; Unavailable while a node of the cluster does not know quotas.
func (s *Store) PrepareSetQuota(tenant string, bytes uint64) (*SetQuota, error) {
	const op = "SetQuota"
	switch {
	case s.Rules() < quotaRules:
		return nil, errs.New(errs.Unavailable, op, "nodes of an older version do not know quotas; upgrade them")
	case bytes > MaxQuota:
		return nil, errs.New(errs.InvalidParams, op, "the quota is %d bytes, at most %d are possible", bytes, uint64(MaxQuota))
	}
	id, known := s.tenants.find(tenant)
	q := &s.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if bytes > 0 {
		if q.count >= MaxQuotas && (!known || q.of(id).quota == 0) {
			return nil, errs.New(errs.InvalidParams, op, "%d tenants have a quota, more are not possible", q.count)
		}
		return &SetQuota{Tenant: tenant, Bytes: bytes, More: q.more}, nil
	}
	if !known || q.of(id).quota == 0 {
		return nil, errs.ObjectNotFound
	}
	a := q.of(id)
	if a.objects > 0 || a.prepared > 0 {
		return nil, errs.TenantNotEmpty
	}
	a.closing = true
	return &SetQuota{Tenant: tenant, More: q.more}, nil
}

// SetQuota sets a tenant's quota in bytes, or removes it for 0.
type SetQuota struct {
	objectEvent

	Tenant string
	Bytes  uint64
	More   bool // others of the same list of quotas follow, if need be from the next primary
}

// Apply sets the quota.
func (e *SetQuota) Apply(tx *Tx) error {
	if tx.globalHas() {
		return nil
	}
	tx.s.setQuota(e.Tenant, e.Bytes)
	tx.s.setMoreQuotas(e.More)
	return nil
}

// Abort lets the tenant write again.
func (e *SetQuota) Abort(s *Store) {
	if id, known := s.tenants.find(e.Tenant); known {
		s.quotas.mu.Lock()
		defer s.quotas.mu.Unlock()
		s.quotas.of(id).closing = false
	}
}

func (s *Store) setQuota(tenant string, bytes uint64) {
	id, q := s.tenants.intern(tenant), &s.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.of(id)
	if a.quota > 0 {
		s.digest -= quotaTerm(tenant, a.quota)
		q.count--
	}
	if bytes > 0 {
		s.digest += quotaTerm(tenant, bytes)
		q.count++
	}
	a.quota, a.closing, q.stale = bytes, false, true
}

func (s *Store) setMoreQuotas(more bool) {
	s.quotas.mu.Lock()
	defer s.quotas.mu.Unlock()
	switch term := quotaTerm("", 1); { // no tenant is called that
	case more && !s.quotas.more:
		s.digest += term
	case !more && s.quotas.more:
		s.digest -= term
	}
	s.quotas.more = more
}

func quotaTerm(tenant string, bytes uint64) Digest {
	return finish(mix(mix(seedQuota, xxh3.HashString(tenant)), bytes))
}

// Code encodes or decodes the fields.
func (e *SetQuota) Code(c *binenc.Coder) {
	c.Tag(typeSetQuota)
	e.code(c)
	c.CodeBool(&e.More)
}

func (e *SetQuota) code(c *binenc.Coder) {
	codeTenant(c, &e.Tenant)
	binenc.CodeUvarintMax(c, &e.Bytes, "a quota", MaxQuota)
}

func (s *Store) codeQuotas(c *binenc.Coder) {
	var list []SetQuota
	for _, t := range s.Quotas() {
		if t.Registered() {
			list = append(list, SetQuota{Tenant: t.Tenant, Bytes: t.Requested})
		}
	}
	more := s.MoreQuotas()
	binenc.CodeSlice(c, &list, 2, func(e *SetQuota) { e.code(c) })
	c.CodeBool(&more)
	if !c.Decoding() {
		return
	}
	for i, e := range list {
		if e.Bytes == 0 || i > 0 && e.Tenant <= list[i-1].Tenant {
			c.Fail("a quota of %d bytes, or one that stands twice or in the wrong place", e.Bytes)
			return
		}
		s.setQuota(e.Tenant, e.Bytes)
	}
	s.setMoreQuotas(more)
}
