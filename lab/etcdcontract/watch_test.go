package etcdcontract

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// next returns the next answer to a watch.
func next(t *testing.T, w clientv3.WatchChan) clientv3.WatchResponse {
	t.Helper()
	select {
	case resp, ok := <-w:
		if !ok {
			t.Fatal("the watch has ended")
		}
		return resp
	case <-within(t, step).Done():
		t.Fatal("nothing comes")
	}
	return clientv3.WatchResponse{}
}

// take returns events until it has n, as "PUT key=value@revision".
func take(t *testing.T, w clientv3.WatchChan, n int) (list []string) {
	t.Helper()
	for len(list) < n {
		resp := next(t, w)
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.Events {
			list = append(list, fmt.Sprintf("%v %s=%s@%d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision))
		}
	}
	return list
}

func wantEvents(t *testing.T, w clientv3.WatchChan, want ...string) {
	t.Helper()
	if got := take(t, w, len(want)); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("events %q, want %q", got, want)
	}
}

// created returns a watch that etcd has begun.
func (e etcd) created(ctx context.Context, t *testing.T, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	t.Helper()
	w := e.Watch(ctx, key, append(opts, clientv3.WithCreatedNotify())...)
	if resp := next(t, w); !resp.Created {
		t.Fatalf("a new watch begins with %+v", resp)
	}
	return w
}

func watchFromNow(t *testing.T, e etcd) {
	e.put(t, "a/before", "")
	w := e.created(within(t, step), t, "a/", clientv3.WithPrefix())
	r := e.put(t, "a/1", "x")
	e.put(t, "b", "")
	e.put(t, "a/1", "y")
	e.delete(t, "a/1")
	e.delete(t, "a/none")
	e.put(t, "a/2", "z")
	wantEvents(t, w,
		fmt.Sprintf("PUT a/1=x@%d", r), fmt.Sprintf("PUT a/1=y@%d", r+2), fmt.Sprintf("DELETE a/1=@%d", r+3), fmt.Sprintf("PUT a/2=z@%d", r+4))
}

func watchFromPast(t *testing.T, e etcd) {
	r := e.put(t, "a/1", "1")
	e.put(t, "a/1", "2")
	e.delete(t, "a/1")
	w := e.created(within(t, step), t, "a/", clientv3.WithPrefix(), clientv3.WithRev(r+1))
	e.put(t, "a/2", "3")
	wantEvents(t, w, fmt.Sprintf("PUT a/1=2@%d", r+1), fmt.Sprintf("DELETE a/1=@%d", r+2), fmt.Sprintf("PUT a/2=3@%d", r+3))
}

func watchFromFuture(t *testing.T, e etcd) {
	r := e.put(t, "k", "1")
	w := e.created(within(t, step), t, "k", clientv3.WithRev(r+3))
	e.put(t, "k", "2")
	e.put(t, "k", "3")
	e.put(t, "k", "4")
	e.put(t, "k", "5")
	wantEvents(t, w, fmt.Sprintf("PUT k=4@%d", r+3), fmt.Sprintf("PUT k=5@%d", r+4))
}

func watchWhole(t *testing.T, e etcd) {
	began := e.put(t, "k", "")
	live := e.created(within(t, step), t, "", clientv3.WithPrefix())
	for i := range 20 {
		_, err := e.Txn(within(t, step)).Then(clientv3.OpPut("b", fmt.Sprint(i)), clientv3.OpPut("a", fmt.Sprint(i)), clientv3.OpDelete("k")).Commit()
		if err != nil {
			t.Fatal(err)
		}
	}
	late := e.created(within(t, step), t, "", clientv3.WithPrefix(), clientv3.WithRev(began+1))
	for name, w := range map[string]clientv3.WatchChan{"live": live, "late": late} {
		seen := make(map[int64]bool)
		for events := 0; events < 41; {
			resp := next(t, w)
			if err := resp.Err(); err != nil {
				t.Fatal(err)
			}
			in := make(map[int64]int)
			for _, event := range resp.Events {
				in[event.Kv.ModRevision]++
			}
			for revision, n := range in {
				if want := 2; n != want && revision != began+1 || seen[revision] {
					t.Errorf("%s: %d events of revision %d in one answer, seen before: %v", name, n, revision, seen[revision])
				}
				seen[revision] = true
			}
			events += len(resp.Events)
		}
	}
}

func watchMany(t *testing.T, e etcd) {
	ctx := within(t, step)
	one, cancelOne := context.WithCancel(ctx)
	a := e.created(one, t, "a")
	b := e.created(ctx, t, "b")
	r := e.put(t, "a", "1")
	e.put(t, "b", "1")
	wantEvents(t, a, fmt.Sprintf("PUT a=1@%d", r))
	wantEvents(t, b, fmt.Sprintf("PUT b=1@%d", r+1))
	cancelOne()
	for range a {
	}
	e.put(t, "a", "2")
	e.put(t, "b", "2")
	wantEvents(t, b, fmt.Sprintf("PUT b=2@%d", r+3))
}

func watchProgress(t *testing.T, e etcd) {
	ctx := within(t, step)
	w := e.created(ctx, t, "a")
	e.put(t, "a", "1")
	e.put(t, "elsewhere", "")
	last := e.put(t, "elsewhere", "")
	take(t, w, 1)
	if err := e.RequestProgress(ctx); err != nil {
		t.Fatal(err)
	}
	resp := next(t, w)
	if !resp.IsProgressNotify() || resp.Header.Revision != last {
		t.Errorf("progress %+v, want revision %d", resp, last)
	}
}

func watchCompacted(t *testing.T, e etcd) {
	first := e.put(t, "k", "1")
	e.put(t, "k", "2")
	last := e.put(t, "k", "3")
	e.compact(t, last)
	w := e.Watch(within(t, step), "k", clientv3.WithRev(first))
	resp := next(t, w)
	if resp.CompactRevision != last || !resp.Canceled || resp.Err() == nil {
		t.Errorf("a watch from %d, compacted to %d: %+v", first, last, resp)
	}
	if resp, ok := <-w; ok {
		t.Errorf("it goes on with %+v", resp)
	}
}

func watchAtCompaction(t *testing.T, e etcd) {
	e.put(t, "k", "1")
	last := e.put(t, "k", "2")
	e.compact(t, last)
	w := e.created(within(t, step), t, "k", clientv3.WithRev(last))
	behind := e.created(within(t, step), t, "k", clientv3.WithRev(last+1))
	r := e.put(t, "k", "3")
	wantEvents(t, w, fmt.Sprintf("PUT k=2@%d", last), fmt.Sprintf("PUT k=3@%d", r))
	wantEvents(t, behind, fmt.Sprintf("PUT k=3@%d", r))

	gone := e.delete(t, "k").Header.Revision
	e.compact(t, gone)
	w = e.created(within(t, step), t, "k", clientv3.WithRev(gone))
	r = e.put(t, "k", "4")
	wantEvents(t, w, fmt.Sprintf("DELETE k=@%d", gone), fmt.Sprintf("PUT k=4@%d", r))
}
