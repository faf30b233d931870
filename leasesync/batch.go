package leasesync

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// MaxBatch bounds the renewals of one batch: with the longest possible numbers it
// fits metadata.MaxChangeBytes.
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
	Renewals []Renewal // grouped by shard; smallest when ordered by id
}

// NewFiller returns a change that every release of this program knows, and that changes
// nothing: it renews the lease of an object that cannot exist.
func NewFiller() metadata.Change { return &Batch{Renewals: make([]Renewal, 1)} }

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

// Apply sets the deadlines. It never fails: the renewal of an object that is gone
// does nothing.
func (b *Batch) Apply(tx *metadata.Tx) error {
	var refs [metadata.ReadAhead]metadata.Ref
	for next := range slices.Chunk(b.Renewals, len(refs)) {
		for i := range next {
			refs[i] = next[i].Ref
		}
		tx.ReadAhead(refs[:len(next)])
		for _, r := range next {
			tx.Renew(r.Ref, r.Deadline)
		}
	}
	return nil
}

// Abort has nothing to take back: the marks are still there.
func (b *Batch) Abort(*metadata.Store) {}

// Code encodes or decodes the fields: runs of one shard, each with its length,
// then for each renewal the differences of its id and of its deadline from the
// previous one.
func (b *Batch) Code(c *binenc.Coder) {
	var last Renewal
	if c.Decoding() {
		b.decode(c, &last)
		return
	}
	for rest := b.Renewals; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Shard == rest[0].Shard {
			n++
		}
		codeRun(c, &rest[0].Shard, &n)
		for i := range rest[:n] {
			codeRenewal(c, &rest[i], &last)
		}
		rest = rest[n:]
	}
}

// decode decodes the runs. It refuses empty runs and empty batches: a record could
// hold millions of them, of one byte each.
func (b *Batch) decode(c *binenc.Coder, last *Renewal) {
	if c.Len() == 0 {
		c.Fail("an empty batch")
	}
	for c.Len() > 0 {
		n := 0
		codeRun(c, &last.Shard, &n)
		if n == 0 {
			c.Fail("an empty run")
		}
		b.Renewals = slices.Grow(b.Renewals, n)
		for range n {
			r := Renewal{Ref: metadata.Ref{Shard: last.Shard}}
			codeRenewal(c, &r, last)
			b.Renewals = append(b.Renewals, r)
		}
	}
}

func codeRun(c *binenc.Coder, shard *uint16, n *int) {
	binenc.CodeUvarintMax(c, shard, "a shard", metadata.ShardCount-1)
	c.CodeCount(n, 2)
}

// codeRenewal codes a renewal that follows another one.
func codeRenewal(c *binenc.Coder, r, last *Renewal) {
	id, deadline := int64(r.ID-last.ID), int64(r.Deadline-last.Deadline)
	binenc.CodeVarint(c, &id)
	binenc.CodeVarint(c, &deadline)
	r.ID, r.Deadline = last.ID+metadata.ObjectID(id), last.Deadline+metadata.Time(deadline)
	last.ID, last.Deadline = r.ID, r.Deadline
}

// Decode decodes one batch, which must fill b.
func Decode(b []byte) (metadata.Change, error) {
	batch := new(Batch)
	if err := metadata.Decode(b, batch); err != nil {
		return nil, fmt.Errorf("lease renewals: %w", err)
	}
	return batch, nil
}
