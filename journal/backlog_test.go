package journal_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A backlog is a journal with records of many commits that nobody needs any more, and an
// elected node that trims it.
type backlog struct {
	*journal.Trimmer
	t      *testing.T
	client *clientv3.Client
	layout journal.Layout
	commit metadata.Seq // the last one

	counted atomic.Int64 // keys that etcd counted for requests
	deletes atomic.Int64 // transactions that deleted records
	now     atomic.Int64
	passes  atomic.Int64 // what the clock moves on by each time that it is read
}

func newBacklog(t *testing.T, commits metadata.Seq) *backlog {
	t.Helper()
	etcd := etcdtest.Start(t)
	b := &backlog{t: t, layout: journal.NewLayout("/understudy", "test"), commit: commits}
	var err error
	if b.client, err = clientv3.New(clientv3.Config{
		Endpoints: etcd.Endpoints(), Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(b.count)},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Close() })
	election := journal.NewElection()
	if _, err := b.client.Put(t.Context(), b.layout.Leader(), election.LeaderPrefix()+"}"); err != nil {
		t.Fatal(err)
	}
	const step = 60 // etcd takes 128 operations in a transaction
	for from := metadata.Seq(1); from <= commits; from += step {
		var puts []clientv3.Op
		for seq := from; seq < min(from+step, commits+1); seq++ {
			record := string(journal.EncodeRecord(journal.Stamp{Term: 1, Seq: seq}, 0, nil))
			puts = append(puts, clientv3.OpPut(b.layout.Record(metadata.LeaseRenewals, seq), record), clientv3.OpPut(b.layout.Record(metadata.ObjectEvents, seq), record))
		}
		if _, err := b.client.Txn(t.Context()).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	at := journal.Cursor{Head: journal.Head{Term: 1, Seq: commits, Bytes: 2 * int64(commits)}, Revision: 1}
	b.Trimmer = &journal.Trimmer{
		Journal: journal.NewEtcdLog(b.client, b.layout, election, at, 5*time.Second, clock.Boot()), Log: slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return time.Duration(b.now.Add(b.passes.Load())) },
		Keep:  time.Minute, MaxBytes: 1 << 40, Covered: func(context.Context) (metadata.Seq, error) { return math.MaxInt64, nil },
	}
	return b
}

// count sees what etcd had to do for a request.
func (b *backlog) count(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Success) > 0 && txn.Success[0].GetRequestDeleteRange() != nil {
		b.deletes.Add(1)
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if resp, ok := reply.(*pb.RangeResponse); ok {
		b.counted.Add(resp.Count)
	}
	return err
}

// trim lets all records get old, and trims them.
func (b *backlog) trim() {
	b.t.Helper()
	for range 2 { // the first look notes when the records stood
		if err := b.Step(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
		b.now.Add(int64(time.Hour))
	}
	for stream := range metadata.StreamCount {
		resp, err := b.client.Get(b.t.Context(), b.layout.Record(stream, 0), clientv3.WithRange(b.layout.Record(stream, b.commit+1)), clientv3.WithCountOnly())
		if err != nil {
			b.t.Fatal(err)
		}
		if resp.Count > 0 {
			b.t.Errorf("all records are old: got %d of %v left after a trim, want none", resp.Count, stream)
		}
	}
}

// etcd counts all keys in the range of a request. Trimming a backlog must not take quadratic time,
// since commits wait for it.
func TestTrimmingABacklogCountsItOnce(t *testing.T) {
	t.Parallel()
	b := newBacklog(t, 4096)
	b.trim()
	if got, most := b.counted.Load(), int64(2*4096); got > most {
		t.Errorf("etcd counted %d keys for the trimming of 4096 commits with 2 records each, want %d at most", got, most)
	}
}

// Trimming keeps up with any primary. While etcd is fast, slices are so large that, with a pause of
// 10 ms after each, the records of at least 20,000 commits a second are deleted. A slow etcd gets
// small slices, since commits wait for each.
func TestSlicesAreAsLargeAsEtcdIsQuick(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		commits     metadata.Seq
		takes       time.Duration // a slice, by the trimmer's clock
		least, most int64         // slices
	}{
		"quick": {4096, time.Millisecond, 4096 / 512, 4096/512 + 3},
		"slow":  {1024, 25 * time.Millisecond, 1024 / 64, 1024 / 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBacklog(t, tc.commits)
			b.passes.Store(int64(tc.takes))
			b.trim()
			if got := b.deletes.Load(); got < tc.least || got > tc.most {
				t.Errorf("%d commits lost their records in %d slices, want %d to %d", tc.commits, got, tc.least, tc.most)
			}
		})
	}
}

// Reading all records of a backlog does not take quadratic time either.
func TestReadingABacklogCountsItAFewTimes(t *testing.T) {
	t.Parallel()
	b := newBacklog(t, 4096)
	reader := &journal.Reader{Client: b.client, Layout: b.layout, Codec: codec}
	next := metadata.Seq(1)
	if err := reader.Records(t.Context(), metadata.LeaseRenewals, 0, math.MaxInt64, func(of journal.Stamp, _ []metadata.Change) error {
		if of.Seq != next {
			t.Errorf("got record %d, want %d", of.Seq, next)
		}
		next++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if next != 4097 {
		t.Errorf("the last record was %d, want 4096", next-1)
	}
	if got, most := b.counted.Load(), int64(8*4096); got > most {
		t.Errorf("etcd counted %d keys for the reading of 4096 records, want %d at most", got, most)
	}
}

// Somebody else's keys among the records stop neither the trimming nor a reader.
func TestForeignKeysAmongTheRecordsArePassedOver(t *testing.T) {
	t.Parallel()
	b := newBacklog(t, 100)
	for stream := range metadata.StreamCount {
		keys := []string{"", "5", "x", "0000000000000000000x"}
		for i := range 40 { // more than a page
			keys = append(keys, fmt.Sprintf("%020dx%02d", 50, i))
		}
		for _, key := range keys {
			if _, err := b.client.Put(t.Context(), b.layout.Records(stream)+key, "garbage"); err != nil {
				t.Fatal(err)
			}
		}
	}
	reader := &journal.Reader{Client: b.client, Layout: b.layout, Codec: codec}
	seen := 0
	if err := reader.Records(t.Context(), metadata.ObjectEvents, 0, math.MaxInt64, func(journal.Stamp, []metadata.Change) error {
		seen++
		return nil
	}); err != nil || seen != 100 {
		t.Errorf("a reader got %d records, %v; want 100", seen, err)
	}
	for _, tc := range []struct{ from, want metadata.Seq }{{0, 1}, {51, 51}, {100, 100}, {101, math.MaxInt64}} {
		if got, err := reader.Oldest(t.Context(), tc.from, math.MaxInt64); err != nil || got != tc.want {
			t.Errorf("the oldest record from %d is %d, %v; want %d", tc.from, got, err, tc.want)
		}
	}
	b.trim()
}
