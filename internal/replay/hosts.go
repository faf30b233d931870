// Package replay plays an LLM request trace against a cluster as a fleet of LLM
// servers would, and judges the cluster from outside: by the bytes it finds
// where the cluster said that they are.
//
// The data plane is real memory of this process: several simulated hosts each
// lend a byte buffer to the store. Whoever puts a block writes the object's id,
// its key and a checksum over the whole block; whoever reads it checks them
// while it holds the lease. So a range that the cluster gives to two objects
// shows as wrong bytes.
package replay

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"
)

// stripe is how much memory one lock guards. Writers and readers of one range
// never meet if the cluster keeps its promises; the locks only make their
// meeting show as wrong bytes and not as a torn word.
const stripe = 64 << 10

// A host lends one buffer as a segment.
type host struct {
	name     string
	endpoint string
	segment  uuid.UUID
	base     uint64
	memory   []byte
	locks    []sync.RWMutex
}

// hosts are the memory of all hosts, by endpoint.
type hosts map[string]*host

// newHosts makes n hosts of size bytes each.
func newHosts(n int, size uint64) hosts {
	all := make(hosts, n)
	for i := range n {
		h := &host{
			name: fmt.Sprintf("host-%d", i), endpoint: fmt.Sprintf("host-%d:12345", i), segment: uuid.New(),
			base: uint64(i+1) << 40, memory: make([]byte, size), locks: make([]sync.RWMutex, size/stripe+1),
		}
		all[h.endpoint] = h
	}
	return all
}

// at returns a range of a host's memory and the locks that guard it.
func (hs hosts) at(endpoint string, address uint64, size int) ([]byte, []sync.RWMutex, error) {
	h := hs[endpoint]
	if h == nil {
		return nil, nil, fmt.Errorf("a replica on a host that does not exist: %q", endpoint)
	}
	if address < h.base || address+uint64(size) > h.base+uint64(len(h.memory)) {
		return nil, nil, fmt.Errorf("a replica at %#x, +%d, outside the segment of %s", address, size, endpoint)
	}
	from := address - h.base
	return h.memory[from : from+uint64(size)], h.locks[from/stripe : (from+uint64(size)-1)/stripe+1], nil
}

// write copies a block to where a replica is to be.
func (hs hosts) write(endpoint string, address uint64, block []byte) error {
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

// read copies a replica's block.
func (hs hosts) read(endpoint string, address uint64, block []byte) error {
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

// fill makes the bytes of an object's block: a checksum, the object's id, its
// key, and words that depend on the id up to the end.
func fill(block []byte, id uint64, key string) {
	binary.LittleEndian.PutUint64(block[8:], id)
	n := 16 + copy(block[16:], key)
	word := id*0x9E3779B97F4A7C15 + 1
	for ; n+8 <= len(block); n += 8 {
		binary.LittleEndian.PutUint64(block[n:], word)
		word += id | 1
	}
	clear(block[n:])
	binary.LittleEndian.PutUint64(block, xxh3.Hash(block[8:]))
}

// check says what is wrong with the bytes of an object's block, "" for nothing.
// scratch must be as long as the block.
func check(block, scratch []byte, id uint64, key string) string {
	fill(scratch, id, key)
	if string(block) == string(scratch) {
		return ""
	}
	other := binary.LittleEndian.Uint64(block[8:])
	if binary.LittleEndian.Uint64(block) != xxh3.Hash(block[8:]) {
		return fmt.Sprintf("the block of object %d (key %s) is torn: its checksum is wrong", id, key)
	}
	return fmt.Sprintf("the block of object %d (key %s) holds object %d", id, key, other)
}
