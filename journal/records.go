package journal

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/metadata"
)

// recordsPage is how many records one request reads, of up to 1 MiB each.
const recordsPage = 16

// Records visits the records of a stream that etcd still holds, from one
// sequence through another, in order.
func (r *Reader) Records(ctx context.Context, stream metadata.Stream, from, through metadata.Seq,
	visit func(of Stamp, changes []metadata.Change) error,
) error {
	for from <= through {
		resp, err := r.Client.Get(ctx, r.Layout.Record(stream, from),
			clientv3.WithRange(r.Layout.Record(stream, through)+"\x00"), clientv3.WithLimit(recordsPage))
		if err != nil {
			return fmt.Errorf("listing %v from %d: %w", stream, from, err)
		}
		for _, kv := range resp.Kvs {
			of, changes, err := r.Codec.DecodeRecord(stream, kv.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", kv.Key, err)
			}
			if err := visit(of, changes); err != nil {
				return err
			}
			from = of.Seq + 1
		}
		if !resp.More {
			return nil
		}
	}
	return nil
}

// Oldest returns the sequence of the oldest record that etcd still holds, at
// least from; a later one than any if there is none.
func (r *Reader) Oldest(ctx context.Context, from metadata.Seq) (metadata.Seq, error) {
	oldest := metadata.Seq(1<<63 - 1)
	for stream := range metadata.StreamCount {
		prefix := r.Layout.Records(stream)
		resp, err := r.Client.Get(ctx, r.Layout.Record(stream, from),
			clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return 0, fmt.Errorf("listing %v: %w", stream, err)
		}
		for _, kv := range resp.Kvs {
			seq, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), prefix), 10, 63)
			if err != nil {
				return 0, fmt.Errorf("a foreign key %s among the records: %w", kv.Key, err)
			}
			oldest = min(oldest, metadata.Seq(seq))
		}
	}
	return oldest, nil
}
