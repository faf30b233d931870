package etcdcontract

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// wantKeys compares key-values, as "key=value".
func wantKeys(t *testing.T, kvs []*mvccpb.KeyValue, want ...string) {
	t.Helper()
	var got []string
	for _, kv := range kvs {
		got = append(got, string(kv.Key)+"="+string(kv.Value))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("keys %q, want %q", got, want)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func revisions(t *testing.T, e etcd) {
	if r := e.get(t, "k"); len(r.Kvs) != 0 || r.Count != 0 {
		t.Errorf("a new etcd has %v", r.Kvs)
	}
	first := e.put(t, "k", "1")
	second := e.put(t, "k", "2")
	other := e.put(t, "other", "1")
	if second != first+1 || other != second+1 {
		t.Errorf("revisions %d %d %d", first, second, other)
	}
	r := e.get(t, "k")
	if kv := r.Kvs[0]; r.Header.Revision != other || kv.CreateRevision != first || kv.ModRevision != second || kv.Version != 2 {
		t.Errorf("at %d: %v", r.Header.Revision, kv)
	}
	if d := e.delete(t, "nothing"); d.Deleted != 0 || d.Header.Revision != other {
		t.Errorf("deleting nothing: %v", d)
	}
	if d := e.delete(t, "k"); d.Deleted != 1 || d.Header.Revision != other+1 {
		t.Errorf("deleting: %v", d)
	}
	again := e.put(t, "k", "3")
	if kv := e.get(t, "k").Kvs[0]; kv.CreateRevision != again || kv.Version != 1 {
		t.Errorf("put again: %v", kv)
	}
}

func ranges(t *testing.T, e etcd) {
	for _, key := range []string{"a/1", "a/3", "a/2", "b", "a"} {
		e.put(t, key, key)
	}
	wantKeys(t, e.get(t, "a/", clientv3.WithPrefix()).Kvs, "a/1=a/1", "a/2=a/2", "a/3=a/3")
	wantKeys(t, e.get(t, "a/2", clientv3.WithRange("b")).Kvs, "a/2=a/2", "a/3=a/3")
	wantKeys(t, e.get(t, "a/2", clientv3.WithFromKey()).Kvs, "a/2=a/2", "a/3=a/3", "b=b")
	wantKeys(t, e.get(t, "", clientv3.WithPrefix(), clientv3.WithKeysOnly()).Kvs, "a=", "a/1=", "a/2=", "a/3=", "b=")
	r := e.get(t, "a/", clientv3.WithPrefix(), clientv3.WithLimit(2))
	wantKeys(t, r.Kvs, "a/1=a/1", "a/2=a/2")
	if !r.More || r.Count != 3 {
		t.Errorf("two of three: more %v, count %d", r.More, r.Count)
	}
	if r := e.get(t, "a/", clientv3.WithPrefix(), clientv3.WithLimit(3)); r.More {
		t.Error("there are more than all")
	}
	if r := e.get(t, "a", clientv3.WithPrefix(), clientv3.WithCountOnly()); r.Count != 4 || len(r.Kvs) != 0 {
		t.Errorf("counting: %v", r)
	}
	if d := e.delete(t, "a/2", clientv3.WithRange("b")); d.Deleted != 2 {
		t.Errorf("deleted %d", d.Deleted)
	}
	wantKeys(t, e.get(t, "", clientv3.WithPrefix()).Kvs, "a=a", "a/1=a/1", "b=b")
}

func past(t *testing.T, e etcd) {
	first := e.put(t, "k", "1")
	e.put(t, "k", "2")
	e.put(t, "l", "1")
	gone := e.delete(t, "k").Header.Revision
	wantKeys(t, e.get(t, "", clientv3.WithPrefix(), clientv3.WithRev(first)).Kvs, "k=1")
	wantKeys(t, e.get(t, "", clientv3.WithPrefix(), clientv3.WithRev(gone-1)).Kvs, "k=2", "l=1")
	wantKeys(t, e.get(t, "", clientv3.WithPrefix(), clientv3.WithRev(gone)).Kvs, "l=1")
	_, err := e.Get(within(t, step), "k", clientv3.WithRev(gone+1))
	wantError(t, "the future", err, rpctypes.ErrFutureRev)
}

func compares(t *testing.T, e etcd) {
	created := e.put(t, "k", "1")
	modified := e.put(t, "k", "m")
	lease := e.grant(t, time.Minute)
	e.put(t, "leased", "", clientv3.WithLease(lease))
	for i, tc := range []struct {
		cmp  clientv3.Cmp
		want bool
	}{
		{clientv3.Compare(clientv3.CreateRevision("k"), "=", created), true},
		{clientv3.Compare(clientv3.CreateRevision("k"), "=", modified), false},
		{clientv3.Compare(clientv3.CreateRevision("k"), "!=", 0), true},
		{clientv3.Compare(clientv3.CreateRevision("none"), "=", 0), true},
		{clientv3.Compare(clientv3.CreateRevision("none"), ">", 0), false},
		{clientv3.Compare(clientv3.ModRevision("k"), "=", modified), true},
		{clientv3.Compare(clientv3.ModRevision("k"), "<", modified), false},
		{clientv3.Compare(clientv3.ModRevision("k"), ">", created), true},
		{clientv3.Compare(clientv3.ModRevision("none"), "=", 0), true},
		{clientv3.Compare(clientv3.Version("k"), "=", 2), true},
		{clientv3.Compare(clientv3.Version("none"), "=", 0), true},
		{clientv3.Compare(clientv3.Value("k"), "=", "m"), true},
		{clientv3.Compare(clientv3.Value("k"), "<", "n"), true},
		{clientv3.Compare(clientv3.Value("k"), "!=", "m"), false},
		{clientv3.Compare(clientv3.Value("none"), "=", ""), false},
		{clientv3.Compare(clientv3.Value("none"), "!=", "x"), false},
		{clientv3.Compare(clientv3.LeaseValue("leased"), "=", lease), true},
		{clientv3.Compare(clientv3.LeaseValue("k"), "=", 0), true},
	} {
		resp, err := e.Txn(within(t, step)).If(tc.cmp).Then(clientv3.OpGet("k")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		if resp.Succeeded != tc.want {
			t.Errorf("compare %d: %v, want %v", i, resp.Succeeded, tc.want)
		}
	}
	both, err := e.Txn(within(t, step)).If(
		clientv3.Compare(clientv3.ModRevision("k"), "=", modified), clientv3.Compare(clientv3.CreateRevision("k"), "=", 0),
	).Else(clientv3.OpGet("k"), clientv3.OpGet("none")).Commit()
	if err != nil {
		t.Fatal(err)
	}
	if both.Succeeded || len(both.Responses) != 2 {
		t.Fatalf("one of two compares holds: %v", both)
	}
	wantKeys(t, both.Responses[0].GetResponseRange().Kvs, "k=m")
	wantKeys(t, both.Responses[1].GetResponseRange().Kvs)
}

func oneRevision(t *testing.T, e etcd) {
	before := e.put(t, "gone", "")
	resp, err := e.Txn(within(t, step)).Then(
		clientv3.OpPut("b", "1"), clientv3.OpPut("a", "1"), clientv3.OpDelete("gone"), clientv3.OpGet("a"),
	).Commit()
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Revision != before+1 {
		t.Errorf("the transaction is at %d behind %d", resp.Header.Revision, before)
	}
	wantKeys(t, resp.Responses[3].GetResponseRange().Kvs, "a=1")
	r := e.get(t, "", clientv3.WithPrefix())
	wantKeys(t, r.Kvs, "a=1", "b=1")
	for _, kv := range r.Kvs {
		if kv.ModRevision != before+1 {
			t.Errorf("%s is at %d", kv.Key, kv.ModRevision)
		}
	}
	empty, err := e.Txn(within(t, step)).Then(clientv3.OpGet("a"), clientv3.OpDelete("none")).Commit()
	if err != nil {
		t.Fatal(err)
	}
	if empty.Header.Revision != before+1 {
		t.Errorf("a transaction that changes nothing moves the revision to %d", empty.Header.Revision)
	}
}

func wholeOrNot(t *testing.T, e etcd) {
	before := e.put(t, "k", "")
	_, err := e.Txn(within(t, step)).Then(clientv3.OpPut("a", ""), clientv3.OpPut("b", "", clientv3.WithLease(7))).Commit()
	wantError(t, "a put on a lease that is not there", err, rpctypes.ErrLeaseNotFound)
	r := e.get(t, "", clientv3.WithPrefix())
	wantKeys(t, r.Kvs, "k=")
	if r.Header.Revision != before {
		t.Errorf("a failed transaction moves the revision from %d to %d", before, r.Header.Revision)
	}
}

func refused(t *testing.T, e etcd) {
	_, err := e.Txn(within(t, step)).Then(clientv3.OpPut("a", "1"), clientv3.OpPut("a", "2")).Commit()
	wantError(t, "a key twice", err, rpctypes.ErrDuplicateKey)
	_, err = e.Txn(within(t, step)).Then(clientv3.OpPut("a", "1"), clientv3.OpDelete("a", clientv3.WithRange("b"))).Commit()
	wantError(t, "a key put and deleted", err, rpctypes.ErrDuplicateKey)
	var ops []clientv3.Op
	for i := range 129 {
		ops = append(ops, clientv3.OpPut(fmt.Sprint(i), ""))
	}
	_, err = e.Txn(within(t, step)).Then(ops...).Commit()
	wantError(t, "129 operations", err, rpctypes.ErrTooManyOps)
	if _, err = e.Txn(within(t, step)).Then(ops[:128]...).Commit(); err != nil {
		t.Errorf("128 operations: %v", err)
	}
	_, err = e.Put(within(t, step), "", "")
	wantError(t, "an empty key", err, rpctypes.ErrEmptyKey)
	_, err = e.Put(within(t, step), "a", "", clientv3.WithLease(7))
	wantError(t, "a put on a lease that is not there", err, rpctypes.ErrLeaseNotFound)
}

func tooLarge(t *testing.T, e etcd) {
	third := strings.Repeat("x", 512<<10)
	_, err := e.Txn(within(t, step)).Then(clientv3.OpPut("a", third), clientv3.OpPut("b", third), clientv3.OpPut("c", third)).Commit()
	wantError(t, "three records of 512 KiB", err, rpctypes.ErrRequestTooLarge)
	_, err = e.Txn(within(t, step)).Then(clientv3.OpPut("a", third), clientv3.OpPut("b", third)).Commit()
	if err != nil {
		t.Errorf("1 MiB: %v", err)
	}
	wantKeys(t, e.get(t, "c", clientv3.WithPrefix()).Kvs)
}

func lostAnswer(t *testing.T, e etcd) {
	losing := e.losing()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := losing.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision("k"), "=", 0)).Then(clientv3.OpPut("k", "1")).Commit()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a transaction without an answer: %v", err)
	}
	wantKeys(t, e.get(t, "k").Kvs, "k=1") // it was applied
	if _, err := losing.Get(within(t, step), "k"); err != nil {
		t.Errorf("a read over the same connection: %v", err)
	}
	resp, err := e.Txn(within(t, step)).If(clientv3.Compare(clientv3.CreateRevision("k"), "=", 0)).Then(clientv3.OpPut("k", "2")).Commit()
	if err != nil || resp.Succeeded {
		t.Errorf("the same transaction again: %v, %v", resp, err)
	}
}

func compaction(t *testing.T, e etcd) {
	first := e.put(t, "k", "1")
	second := e.put(t, "k", "2")
	gone := e.put(t, "gone", "")
	e.delete(t, "gone")
	last := e.put(t, "k", "3")
	e.compact(t, gone)
	_, err := e.Get(within(t, step), "k", clientv3.WithRev(second))
	wantError(t, "a read below the compaction", err, rpctypes.ErrCompacted)
	wantKeys(t, e.get(t, "", clientv3.WithPrefix(), clientv3.WithRev(gone)).Kvs, "gone=", "k=2")
	if kv := e.get(t, "k").Kvs[0]; kv.CreateRevision != first || kv.Version != 3 {
		t.Errorf("compaction changed %v", kv)
	}
	_, err = e.Compact(within(t, step), gone)
	wantError(t, "compacting again", err, rpctypes.ErrCompacted)
	_, err = e.Compact(within(t, step), last+10)
	wantError(t, "compacting the future", err, rpctypes.ErrFutureRev)
	e.compact(t, last)
	wantKeys(t, e.get(t, "", clientv3.WithPrefix()).Kvs, "k=3")
	if r := e.put(t, "gone", "again"); e.get(t, "gone").Kvs[0].CreateRevision != r {
		t.Error("a deleted key is remembered")
	}
}

func noSpace(t *testing.T, e etcd) {
	value := strings.Repeat("x", 256<<10)
	lease := e.grant(t, time.Hour)
	var last int64
	for {
		resp, err := e.Put(within(t, step), "k", value)
		if err != nil {
			wantError(t, "filling", err, rpctypes.ErrNoSpace)
			break
		}
		last = resp.Header.Revision
	}
	_, err := e.Txn(within(t, step)).Then(clientv3.OpPut("small", "")).Commit()
	wantError(t, "a transaction", err, rpctypes.ErrNoSpace)
	_, err = e.Grant(within(t, step), 60)
	wantError(t, "a lease", err, rpctypes.ErrNoSpace)
	if resp, err := e.KeepAliveOnce(within(t, step), lease); err != nil || resp.TTL <= 0 {
		t.Errorf("a keepalive: %v, %v", resp, err)
	}
	wantKeys(t, e.get(t, "k", clientv3.WithKeysOnly()).Kvs, "k=")
	e.delete(t, "k")
	e.compact(t, last)
	if _, err := e.Defragment(within(t, step), e.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	_, err = e.Put(within(t, step), "k", "")
	wantError(t, "a put while the alarm is raised", err, rpctypes.ErrNoSpace)
	list, err := e.AlarmList(within(t, step))
	if err != nil || len(list.Alarms) != 1 {
		t.Fatalf("alarms %v, %v", list, err)
	}
	if _, err := e.AlarmDisarm(within(t, step), (*clientv3.AlarmMember)(list.Alarms[0])); err != nil {
		t.Fatal(err)
	}
	e.put(t, "k", "")
	st, err := e.Status(within(t, step), e.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	if st.DbSize > 8<<20 {
		t.Errorf("%d bytes after compaction and defragmentation", st.DbSize)
	}
}
