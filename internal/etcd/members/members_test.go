package members_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/etcd/members"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Until a node has started it may ask again; meanwhile no other joins.
func TestAddAndRemove(t *testing.T) {
	etcd := etcdtest.Start(t)
	client, ctx := etcd.Client(t), t.Context()
	const at = "http://127.0.0.1:1"
	cluster := members.Cluster{Client: client, Replaced: "/replaced/"}
	for range 2 {
		initial, err := cluster.Add(ctx, "b", at)
		all := strings.Split(initial, ",")
		if err != nil || len(all) != 2 || !slices.Contains(all, "b="+at) {
			t.Fatalf("got %q, %v; want two members, one of them b", initial, err)
		}
	}
	if _, err := cluster.Add(ctx, "c", "http://127.0.0.1:2"); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "another node joins") {
		t.Errorf("a second learner: got %v, want that another node joins", err)
	}
	list, err := members.List(ctx, client)
	if err != nil || len(list) != 2 || !list[0].Learner || list[0].Name != "" || list[0].PeerURL != at {
		t.Fatalf("got %v, %v; want b as a learner without a name", list, err)
	}
	first := list[1]
	if _, err := cluster.Add(ctx, first.Name, at); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "masterctl member replace "+first.Name) {
		t.Errorf("a name that is there: got %v, want that it is to be replaced", err)
	}
	if err := cluster.Remove(ctx, "nobody"); errs.KindOf(err) != errs.InvalidParams {
		t.Errorf("removing nobody: got %v, want %v", err, errs.InvalidParams)
	}
	if err := cluster.Remove(ctx, at); err != nil {
		t.Errorf("removal of a member that never started: got error %v, want none", err)
	}
	for _, bad := range [][2]string{{"", at}, {"a=b", at}, {"c", "http://127.0.0.1"}, {"c", "x"}} {
		if _, err := cluster.Add(ctx, bad[0], bad[1]); errs.KindOf(err) != errs.InvalidParams {
			t.Errorf("%q at %q: got %v, want %v", bad[0], bad[1], err, errs.InvalidParams)
		}
	}
}

// A member that may be replaced stays until a node joins in its place, and only while it is
// gone.
func TestReplace(t *testing.T) {
	etcd := etcdtest.Start(t)
	client, ctx := etcd.Client(t), t.Context()
	runs := false
	alive := func(context.Context) (func(string) bool, error) { return func(string) bool { return runs }, nil }
	cluster := members.Cluster{Client: client, Replaced: "/replaced/", Alive: alive}
	list, err := members.List(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	name := list[0].Name
	runs = true
	if err := cluster.Replace(ctx, name); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("replacing one that runs: got %v, want that it is refused", err)
	}
	if err := cluster.Remove(ctx, name); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("removing one that runs: got %v, want that it is refused", err)
	}
	runs = false
	if err := cluster.Replace(ctx, name); err != nil {
		t.Fatal(err)
	}
	if list, err = members.List(ctx, client); err != nil || len(list) != 1 || list[0].Name != name {
		t.Errorf("got %v, %v; want that %s is a member until its node joins", list, err, name)
	}
	runs = true // it came back with its data
	if _, err := cluster.Add(ctx, name, "http://127.0.0.1:1"); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("joining in place of one that runs: got %v, want that it is refused", err)
	}
	if err := cluster.Returned(ctx, name); err != nil {
		t.Fatal(err)
	}
	runs = false // it is lost once more, and nobody has said that it may be replaced
	if _, err := cluster.Add(ctx, name, "http://127.0.0.1:1"); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "masterctl member replace "+name) {
		t.Errorf("joining in place of one that came back meanwhile: got %v, want that it takes an order", err)
	}
}

// A change whose answer is lost may have been made: that is no refusal.
func TestChangesWithoutAnAnswer(t *testing.T) {
	etcd := etcdtest.Start(t)
	run := &faultinject.Run{Kind: faultinject.AnswerLost, I: 1, Row: 100, Skip: func(method string, _ int) bool { return strings.HasSuffix(method, "/MemberList") }}
	client, ctx := etcd.Client(t, run.DialOptions()...), t.Context()
	cluster := members.Cluster{Client: client, Replaced: "/replaced/"}
	list, err := members.List(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	run.Arm()
	const at = "http://127.0.0.1:1"
	if _, err := cluster.Add(ctx, "b", at); errs.KindOf(err) != errs.Unresolved {
		t.Errorf("adding: got %v, want %v", err, errs.Unresolved)
	}
	if err := cluster.Replace(ctx, list[0].Name); errs.KindOf(err) != errs.Unresolved {
		t.Errorf("replacing: got %v, want %v", err, errs.Unresolved)
	}
	if err := cluster.Remove(ctx, at); errs.KindOf(err) != errs.Unresolved {
		t.Errorf("removing: got %v, want %v", err, errs.Unresolved)
	}
	if list, err = members.List(ctx, client); err != nil || len(list) != 1 {
		t.Errorf("got %v, %v; want that b came and went", list, err)
	}
}

// Whichever question or answer is lost, what is reported is true: no error means done, and
// Unavailable that nothing changed. A repeated call ends in the same.
func TestLostChanges(t *testing.T) {
	etcd := etcdtest.Start(t)
	direct, ctx := etcd.Client(t), t.Context()
	isThere := func(at string) bool {
		list, err := members.List(ctx, direct)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list, func(m members.Member) bool { return m.PeerURL == at })
	}
	add := func(c *clientv3.Client, at string) error {
		_, err := members.Cluster{Client: c, Replaced: "/replaced/"}.Add(ctx, "b", at)
		return err
	}
	remove := func(c *clientv3.Client, at string) error {
		if err := (members.Cluster{Client: c}).Remove(ctx, at); errs.KindOf(err) != errs.InvalidParams { // it is no member any more
			return err
		}
		return nil
	}
	port := 0
	check := func(run *faultinject.Run, added bool) {
		port++ // etcd takes no member again at the same URL within a second
		at, call := fmt.Sprintf("http://127.0.0.1:%d", port), add
		if !added {
			if err := add(direct, at); err != nil {
				t.Fatal(err)
			}
			call = remove
		}
		c := etcd.Client(t, run.DialOptions()...)
		run.Arm()
		err := call(c, at)
		run.Disarm()
		switch kind, now := errs.KindOf(err), isThere(at); {
		case kind == errs.OK && now == added, kind == errs.Unavailable && now != added, kind == errs.Unresolved && !strings.Contains(run.Fault(), "MemberList"):
		default:
			t.Errorf("%v, to add: %v: got %v, with the member there: %v, want the error to say what is true of it", run, added, err, now)
		}
		if err := call(c, at); err != nil || isThere(at) != added {
			t.Errorf("%v, to add: %v, again: got %v, with the member there: %v, want no error, and it there: %v", run, added, err, isThere(at), added)
		}
		if err := remove(direct, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []faultinject.Kind{faultinject.QuestionLost, faultinject.AnswerLost} {
		for _, added := range []bool{true, false} {
			for run := range faultinject.Runs(kind) {
				check(run, added)
			}
		}
	}
}

func TestSpare(t *testing.T) {
	for _, tt := range []struct {
		voters, alive, want int
	}{{1, 1, 0}, {2, 2, 0}, {3, 3, 1}, {3, 2, 0}, {3, 1, -1}, {4, 4, 1}, {5, 5, 2}} {
		list := []members.Member{{Name: "learner", Learner: true}}
		for i := range tt.voters {
			list = append(list, members.Member{Name: string(rune('a' + i))})
		}
		alive := func(name string) bool { return int(name[0]-'a') < tt.alive }
		if voters, got := members.Spare(list, alive); voters != tt.voters || got != tt.want {
			t.Errorf("%d of %d alive: got %d of %d, want %d", tt.alive, tt.voters, got, voters, tt.want)
		}
	}
}
