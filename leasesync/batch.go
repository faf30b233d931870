package leasesync

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/understudy-store/understudy/internal/binenc"
	"github.com/understudy-store/understudy/metadata"
)

// MaxBatch is how many renewals one batch holds at most: with the longest
// possible numbers it still fits metadata.MaxChangeBytes.
const MaxBatch = 3000

// A Renewal is the new end of an object's lease.
type Renewal struct {
	metadata.Ref
	Deadline metadata.Time
}

// A Batch is a run of renewals: one change in the journal. In etcd a renewal
// takes about 6 bytes, and 16 at most while ids are from one term: ids and
// deadlines are coded as differences.
type Batch struct {
	Renewals []Renewal // grouped by shard; ordered by id, they take least
}

// Pack orders renewals and splits them into batches of at most MaxBatch. The
// batches share the memory of the renewals.
func Pack(renewals []Renewal) []metadata.Change {
	slices.SortFunc(renewals, func(a, b Renewal) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.ID, b.ID))
	})
	var batches []metadata.Change
	for chunk := range slices.Chunk(renewals, MaxBatch) {
		batches = append(batches, &Batch{Renewals: chunk})
	}
	return batches
}

// Stream returns LeaseRenewals.
func (b *Batch) Stream() metadata.Stream { return metadata.LeaseRenewals }

// Apply sets the deadlines. There is no answer: a renewal of an object that is
// gone renews nothing.
func (b *Batch) Apply(tx *metadata.Tx) error {
	for _, r := range b.Renewals {
		tx.Renew(r.Ref, r.Deadline)
	}
	return nil
}

// Abort has nothing to take back: the marks are still there.
func (b *Batch) Abort(*metadata.Store) {}

// AppendBinary appends the encoding: runs of one shard, each with its length,
// then for each renewal the difference of its id and of its deadline to the
// one before.
func (b *Batch) AppendBinary(buf []byte) ([]byte, error) {
	var last Renewal
	for rest := b.Renewals; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Shard == rest[0].Shard {
			n++
		}
		buf = binenc.AppendUvarint(buf, uint64(rest[0].Shard))
		buf = binenc.AppendUvarint(buf, uint64(n))
		for _, r := range rest[:n] {
			buf = binenc.AppendVarint(buf, int64(r.ID-last.ID))
			buf = binenc.AppendVarint(buf, int64(r.Deadline-last.Deadline))
			last = r
		}
		rest = rest[n:]
	}
	return buf, nil
}

// Decode decodes one batch, which must fill b. There is no empty one: a record
// could hold millions, of one byte each.
func Decode(b []byte) (metadata.Change, error) {
	r := binenc.NewReader(b)
	batch := &Batch{}
	if r.Len() == 0 {
		r.Fail("an empty batch")
	}
	var last Renewal
	for r.Len() > 0 {
		shard := uint16(r.UvarintMax("a shard", metadata.ShardCount-1))
		n := r.Count(2)
		if n == 0 {
			r.Fail("an empty run")
		}
		batch.Renewals = slices.Grow(batch.Renewals, n)
		last.Shard = shard
		for range n {
			last.ID += metadata.ObjectID(r.Varint())
			last.Deadline += metadata.Time(r.Varint())
			batch.Renewals = append(batch.Renewals, last)
		}
	}
	if err := r.Close(); err != nil {
		return nil, fmt.Errorf("lease renewals: %w", err)
	}
	return batch, nil
}
