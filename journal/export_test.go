package journal

import (
	"context"
	"time"
)

// Encode returns the head as it is written.
func (h Head) Encode() (string, error) { return h.encode() }

// EncodeRecord returns the record of so many changes, each encoded behind its
// length.
func EncodeRecord(of Stamp, count int, changes []byte) []byte {
	return encodeRecord(of, count, [][]byte{changes})
}

// MaxRecordBytes bounds a record when it is unpacked.
const MaxRecordBytes = maxRecordBytes

// Sending notes that a commit is about to be sent, as a Writer does.
func (r *Right) Sending(now, window, failover time.Duration) { r.sending(now, window, failover) }

// Committed notes that the commit sent at a time succeeded.
func (r *Right) Committed(sent, window time.Duration) { r.committed(sent, window) }

// InTurn runs what one of several members of etcd does at a time.
func (c *Compactor) InTurn(ctx context.Context, run func(context.Context) error) error {
	return c.inTurn(ctx, run)
}

// Step deletes what may go now, as Run does once a second.
func (t *Trimmer) Step(ctx context.Context) error { return t.step(ctx) }
