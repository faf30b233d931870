// Package hostmem is the data plane of simulated hosts: memory of this process that
// they lend to a store, and blocks that identify their object.
//
// A writer writes the object's id, its key and a checksum over the whole block; a
// reader checks them. So a range that a cluster gives to two objects shows as wrong
// bytes.
//
// The package knows no cluster and judges nothing: it reports what is in memory.
package hostmem

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"
)

// stripe is how many bytes one lock guards. If the cluster keeps its promises, a range is
// never read and written at the same time. The locks only make sure that a conflict shows
// as wrong bytes, and is no data race.
const stripe = 64 << 10

// MinBlock is the smallest size of a block without its key, in bytes.
const MinBlock = 16

// A Host lends one buffer as a segment.
type Host struct {
	Name     string
	Endpoint string
	Segment  uuid.UUID
	Base     uint64 // address of the first byte
	memory   []byte
	locks    []sync.RWMutex
}

// Size returns how many bytes a host lends.
func (h *Host) Size() uint64 { return uint64(len(h.memory)) }

// Hosts are the memory of all hosts, by endpoint.
type Hosts map[string]*Host

// New makes n hosts of size bytes each, named after a prefix and their number. Loads that
// share a cluster need different prefixes, since a mount unmounts earlier memory at the
// same endpoint.
func New(prefix string, n int, size uint64) Hosts {
	all := make(Hosts, n)
	for i := range n {
		name := fmt.Sprintf("%s-%d", prefix, i)
		h := &Host{
			Name: name, Endpoint: name + ":12345", Segment: uuid.New(),
			Base: uint64(i+1) << 40, memory: make([]byte, size), locks: make([]sync.RWMutex, size/stripe+1),
		}
		all[h.Endpoint] = h
	}
	return all
}

// Endpoints returns the endpoints of all hosts, sorted.
func (hs Hosts) Endpoints() []string { return slices.Sorted(maps.Keys(hs)) }

// Endpoint returns the endpoint of the host with a name.
func (hs Hosts) Endpoint(name string) string {
	for endpoint, h := range hs {
		if h.Name == name {
			return endpoint
		}
	}
	return ""
}

// at returns a range of a host's memory and the locks that guard it.
func (hs Hosts) at(endpoint string, address uint64, size int) ([]byte, []sync.RWMutex, error) {
	h := hs[endpoint]
	if h == nil {
		return nil, nil, fmt.Errorf("a replica on a host that does not exist: %q", endpoint)
	}
	if address < h.Base || address+uint64(size) > h.Base+h.Size() {
		return nil, nil, fmt.Errorf("a replica at %#x, +%d, outside the segment of %s", address, size, endpoint)
	}
	from := address - h.Base
	return h.memory[from : from+uint64(size)], h.locks[from/stripe : (from+uint64(size)-1)/stripe+1], nil
}

// Write copies a block to the place of a replica. It fails for a place that no host lends.
func (hs Hosts) Write(endpoint string, address uint64, block []byte) error {
	memory, locks, err := hs.at(endpoint, address, len(block))
	if err != nil {
		return err
	}
	for i := range locks {
		locks[i].Lock()
	}
	copy(memory, block)
	for i := range locks {
		locks[i].Unlock()
	}
	return nil
}

// Read copies a replica's block. It fails for a place that no host lends.
func (hs Hosts) Read(endpoint string, address uint64, block []byte) error {
	memory, locks, err := hs.at(endpoint, address, len(block))
	if err != nil {
		return err
	}
	for i := range locks {
		locks[i].RLock()
	}
	copy(block, memory)
	for i := range locks {
		locks[i].RUnlock()
	}
	return nil
}

// Fill makes the bytes of an object's block: a checksum, the object's id, its
// key, and words that depend on the id up to the end. The block has room for
// MinBlock bytes and the key.
func Fill(block []byte, id uint64, key string) {
	binary.LittleEndian.PutUint64(block[8:], id)
	n := MinBlock + copy(block[MinBlock:], key)
	word := id*0x9E3779B97F4A7C15 + 1
	for ; n+8 <= len(block); n += 8 {
		binary.LittleEndian.PutUint64(block[n:], word)
		word += id | 1
	}
	clear(block[n:])
	binary.LittleEndian.PutUint64(block, xxh3.Hash(block[8:]))
}

// Check returns what is wrong with the bytes of an object's block, "" for nothing.
// scratch must be as long as the block.
func Check(block, scratch []byte, id uint64, key string) string {
	Fill(scratch, id, key)
	if string(block) == string(scratch) {
		return ""
	}
	other := ID(block)
	if binary.LittleEndian.Uint64(block) != xxh3.Hash(block[8:]) {
		return fmt.Sprintf("the block of object %d (key %s) is torn: its checksum is wrong", id, key)
	}
	return fmt.Sprintf("the block of object %d (key %s) holds object %d", id, key, other)
}

// ID returns the object id in a block.
func ID(block []byte) uint64 { return binary.LittleEndian.Uint64(block[8:]) }
