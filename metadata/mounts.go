package metadata

import (
	"cmp"
	"maps"
	"slices"

	"github.com/understudy-store/understudy/internal/ordered"
	"github.com/understudy-store/understudy/segment"
)

// mounts indexes the mounted segments by everything that calls name them by. Guarded by
// Store.applyMu.
type mounts struct {
	byNumber   ordered.Set[*segmentState] // all of them; see Store.mounted
	byID       map[segment.ID]*segmentState
	byClient   map[segment.ClientID][]*segmentState // in the order of their mounts, as all but byEndpoint
	byName     map[string][]*segmentState
	byEndpoint map[string][]*segmentState // by their base; they do not overlap
	byHost     map[string][]*segmentState // by host id, where there is one
}

func newMounts() mounts {
	earlier := func(a, b *segmentState) bool { return a.Number < b.Number }
	return mounts{
		ordered.NewSet(earlier), make(map[segment.ID]*segmentState),
		make(map[segment.ClientID][]*segmentState), make(map[string][]*segmentState), make(map[string][]*segmentState),
		make(map[string][]*segmentState),
	}
}

// add makes a segment known that was mounted after all others.
func (m *mounts) add(p *segmentState) {
	m.byNumber.Set(p)
	m.byID[p.ID] = p
	m.byClient[p.Client] = append(m.byClient[p.Client], p)
	m.byName[p.Name] = append(m.byName[p.Name], p)
	if p.HostID != "" {
		m.byHost[p.HostID] = append(m.byHost[p.HostID], p)
	}
	there := m.byEndpoint[p.Endpoint]
	at, _ := slices.BinarySearchFunc(there, p, byBase)
	m.byEndpoint[p.Endpoint] = slices.Insert(there, at, p)
}

func (m *mounts) remove(p *segmentState) {
	m.byNumber.Delete(p)
	if m.byID[p.ID] == p {
		delete(m.byID, p.ID)
	}
	removeFrom(m.byClient, p.Client, p, byMount)
	removeFrom(m.byName, p.Name, p, byMount)
	removeFrom(m.byEndpoint, p.Endpoint, p, byBase)
	if p.HostID != "" {
		removeFrom(m.byHost, p.HostID, p, byMount)
	}
}

func byMount(a, b *segmentState) int { return cmp.Compare(a.Number, b.Number) }

func byBase(a, b *segmentState) int { return cmp.Or(cmp.Compare(a.Base, b.Base), byMount(a, b)) }

// removeFrom takes a segment out of a list that is in an order. It moves no others to
// remove the first one: the segments of an owner that goes are removed in their order.
func removeFrom[K comparable](lists map[K][]*segmentState, key K, p *segmentState, order func(a, b *segmentState) int) {
	list := lists[key]
	at, _ := slices.BinarySearchFunc(list, p, order)
	switch {
	case len(list) == 1:
		delete(lists, key)
	case at == 0:
		list[0] = nil
		lists[key] = list[1:]
	default:
		lists[key] = slices.Delete(list, at, at+1)
	}
}

// at returns the segments that share memory with one: the first MaxReplaced+1, if there
// are more than MaxReplaced.
func (m *mounts) at(spec segment.Spec) []*segmentState {
	there := m.byEndpoint[spec.Endpoint]
	from, _ := slices.BinarySearchFunc(there, spec.Base, func(p *segmentState, base uint64) int {
		if p.Base+p.Size <= base {
			return -1
		}
		return 1
	})
	through := from
	for through < len(there) && through-from <= MaxReplaced && there[through].SamePlace(spec) {
		through++
	}
	return there[from:through]
}

// SegmentsOf returns the numbers of the segments that a client has mounted, in
// order.
func (s *Store) SegmentsOf(client segment.ClientID) []segment.Number {
	var numbers []segment.Number
	for _, p := range s.mountedBy(client) {
		numbers = append(numbers, p.Number)
	}
	return numbers
}

// EarlierMounts returns the numbers of the segments that other instances of a client have
// mounted, in order. It returns none for instance 0, which means not known.
func (s *Store) EarlierMounts(client segment.ClientID, instance uint64) (numbers []segment.Number) {
	if instance == 0 {
		return nil
	}
	for _, p := range s.mountedBy(client) {
		if p.Instance != 0 && p.Instance != instance {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// NotMounted returns those of some segments that are not mounted, unless the same process
// has another segment mounted in their place.
func (s *Store) NotMounted(specs []segment.Spec) (missing []segment.Spec) {
	for _, spec := range specs {
		if !s.isMounted(spec) {
			missing = append(missing, spec)
		}
	}
	return missing
}

func (s *Store) isMounted(spec segment.Spec) bool {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	p := s.mounts.byID[spec.ID]
	return p != nil && p.SameMount(spec) || slices.ContainsFunc(s.mounts.at(spec), func(p *segmentState) bool {
		return p.Client == spec.Client && (p.Instance == spec.Instance || p.Instance == 0 || spec.Instance == 0)
	})
}

// OwnersAt returns the clients that have mounted segments at an endpoint.
func (s *Store) OwnersAt(endpoint string) []segment.ClientID {
	owners := make(map[segment.ClientID]bool, 1)
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	for _, p := range s.mounts.byEndpoint[endpoint] {
		owners[p.Client] = true
	}
	return slices.Collect(maps.Keys(owners))
}

// A Lender is who has mounted memory.
type Lender struct {
	Client segment.ClientID
	Peer   string // that the memory counts for; empty if it is not known since a takeover
}

// LendersOf returns who has mounted some segments, each once, in their order. Those that are
// not mounted are left out.
func (s *Store) LendersOf(numbers []segment.Number) (lenders []Lender) {
	known := make(map[Lender]bool, 1)
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	for _, number := range numbers {
		p := s.segments[number]
		if p == nil {
			continue
		}
		if l := (Lender{p.Client, p.peer}); !known[l] {
			known[l] = true
			lenders = append(lenders, l)
		}
	}
	return lenders
}

// OwnersOf returns the other clients that have mounted memory where a segment is.
func (s *Store) OwnersOf(spec segment.Spec) (owners []segment.ClientID) {
	known := make(map[segment.ClientID]bool, 1)
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	for _, p := range s.mounts.at(spec) {
		if p.Client != spec.Client && !known[p.Client] {
			known[p.Client] = true
			owners = append(owners, p.Client)
		}
	}
	return owners
}

// maxOnHost is how many segments of a host a put tries first. Hosts lend few.
const maxOnHost = 64

// NamesOnHost returns the names of segments on a host: of the maxOnHost that were mounted
// first. It may return a name more than once. An empty host stands for that of the
// client's newest segment.
func (s *Store) NamesOnHost(client segment.ClientID, host string) (names []string) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if own := s.mounts.byClient[client]; host == "" && len(own) > 0 {
		host = own[len(own)-1].HostID
	}
	here := s.mounts.byHost[host] // none for the empty one
	for i, p := range here[:min(len(here), maxOnHost)] {
		if i == 0 || p.Name != here[i-1].Name {
			names = append(names, p.Name)
		}
	}
	return names
}

// MemoryByOwner returns how many bytes each client has mounted.
func (s *Store) MemoryByOwner() map[segment.ClientID]uint64 {
	bytes := make(map[segment.ClientID]uint64)
	for p := range s.mounted().Scan {
		bytes[p.Client] += p.Size
	}
	return bytes
}
