package etcdclient_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
)

// withUsers has an etcd demand a user: root, or one that may write one key only.
func withUsers(t *testing.T, etcd *etcdtest.Cluster, key string) {
	t.Helper()
	admin := etcd.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, err := range []error{
		second(admin.UserAdd(ctx, "root", "secret")), second(admin.RoleAdd(ctx, "root")), second(admin.UserGrantRole(ctx, "root", "root")),
		second(admin.UserAdd(ctx, "writer", "secret")), second(admin.RoleAdd(ctx, "writer")), second(admin.UserGrantRole(ctx, "writer", "writer")),
		second(admin.RoleGrantPermission(ctx, "writer", key, "", clientv3.PermissionType(authpb.READWRITE))),
		second(admin.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // for the test's own client
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		client, err := etcdclient.Connect(ctx, etcd.Endpoints(), etcdclient.Access{User: "root", Password: etcdclient.FixedPassword("secret")}, nil)
		if err == nil {
			_, err = client.AuthDisable(ctx)
			_ = client.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func second(_ any, err error) error { return err }

// A client works at an etcd that demands a user, also while the first member of its list is
// away, and is refused with a wrong password. The check needs no permission of its own.
func TestUsersAreTaken(t *testing.T) {
	etcd := etcdtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	withUsers(t, etcd, "k")
	const nobody = "http://127.0.0.1:1"
	for user, endpoints := range map[string][]string{"root": append([]string{nobody}, etcd.Endpoints()...), "writer": etcd.Endpoints()} {
		client, err := etcdclient.Connect(t.Context(), endpoints, etcdclient.Access{User: user, Password: etcdclient.FixedPassword("secret")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		watch := client.Watch(ctx, "k")
		lease, err := client.Grant(ctx, 10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(ctx, "k", user, clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		if got := <-watch; len(got.Events) != 1 || string(got.Events[0].Kv.Value) != user {
			t.Errorf("got %+v (%v), want one event with %s", got.Events, got.Err(), user)
		}
		soon, stop := context.WithTimeout(ctx, 20*time.Second)
		if err := etcdclient.Check(soon, client, etcd.Endpoints()); err != nil {
			t.Errorf("check of %s: got %v, want no error", user, err)
		}
		stop()
	}
	if client, err := etcdclient.Connect(t.Context(), etcd.Endpoints(), etcdclient.Access{User: "root", Password: etcdclient.FixedPassword("wrong")}, nil); err == nil {
		_ = client.Close()
		t.Error("a wrong password: got a connection, want an error")
	}
}

// A client moves on to a member that has begun anew and does not know the client's token
// any more, as after a rolling restart of etcd.
func TestTokensThatAMemberForgot(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithNodes(3))
	withUsers(t, etcd, "k")
	var endpoints []string
	for i := range 3 {
		endpoints = append(endpoints, etcd.Endpoint(i))
	}
	client, err := etcdclient.Connect(t.Context(), endpoints, etcdclient.Access{User: "writer", Password: etcdclient.FixedPassword("secret")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	put(t, client, "k", "0")
	for _, i := range []int{1, 2} {
		etcd.Stop(i)
		etcd.Start(i)
	}
	etcd.WaitLeader(t)
	etcd.Pause(0)
	defer etcd.Resume(0)
	etcd.WaitLeader(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for err = context.DeadlineExceeded; err != nil && ctx.Err() == nil; {
		attempt, stop := context.WithTimeout(ctx, attemptTimeout)
		_, err = client.Put(attempt, "k", "1")
		stop()
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			break
		}
	}
	if err != nil {
		t.Errorf("a put, with two members that began anew: got %v, want no error", err)
	}
}

// Keepalives, each of which opens a stream, do not have etcd give out a token each. etcd's log
// has an entry for each token.
func TestTokensServeManyStreams(t *testing.T) {
	etcd := etcdtest.Start(t)
	withUsers(t, etcd, "k")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := etcdclient.Connect(t.Context(), etcd.Endpoints(), etcdclient.Access{User: "writer", Password: etcdclient.FixedPassword("secret")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	lease, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	before, err := client.Status(ctx, etcd.Endpoint(0))
	if err != nil {
		t.Fatal(err)
	}
	const keepAlives = 10
	for range keepAlives {
		if _, err := client.KeepAliveOnce(ctx, lease.ID); err != nil {
			t.Fatal(err)
		}
	}
	after, err := client.Status(ctx, etcd.Endpoint(0))
	if err != nil {
		t.Fatal(err)
	}
	if n := after.RaftAppliedIndex - before.RaftAppliedIndex; n >= keepAlives/2 {
		t.Errorf("%d keepalives: got %d entries in etcd's log, want 1 at most on a fast machine", keepAlives, n)
	}
}

// A password that is changed in etcd and in its file, in either order, is taken without a
// new client.
func TestPasswordFileIsReadAgain(t *testing.T) {
	etcd := etcdtest.Start(t)
	withUsers(t, etcd, "k")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	root, err := etcdclient.Connect(t.Context(), etcd.Endpoints(), etcdclient.Access{User: "root", Password: etcdclient.FixedPassword("secret")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change := func(password string) {
		if _, err := root.UserChangePassword(ctx, "writer", password); err != nil {
			t.Fatal(err)
		}
	}
	write("secret")
	client, err := etcdclient.Connect(t.Context(), etcd.Endpoints(), etcdclient.Access{User: "writer", Password: etcdclient.PasswordFile(file)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	put(t, client, "k", "0")
	write("second")
	change("second")
	put(t, client, "k", "1")
	change("third")
	if _, err := client.Put(ctx, "k", "2"); !etcdclient.Refuses(err) {
		t.Errorf("a put with a password that etcd has replaced: got %v, want that etcd refuses it", err)
	}
	write("third")
	put(t, client, "k", "3")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	change("fourth")
	if _, err := client.Put(ctx, "k", "4"); err == nil || !strings.Contains(err.Error(), "the password of etcd's user writer") {
		t.Errorf("a put without the file: got %v, want an error that names the user", err)
	}
}

// A client of an etcd that demands a user gets on with the one member that answers, and waits for
// silent ones no longer than its caller.
func TestUsersBesideSilentMembers(t *testing.T) {
	etcd := etcdtest.Start(t)
	withUsers(t, etcd, "k")
	var silent []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		silent = append(silent, "http://"+l.Addr().String())
	}
	access := etcdclient.Access{User: "writer", Password: etcdclient.FixedPassword("secret")}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // one silent member after the other would take 15 s
	client, err := etcdclient.Connect(ctx, append(slices.Clone(silent), etcd.Endpoints()...), access, nil)
	cancel()
	if err != nil {
		t.Fatalf("connect beside silent members: got error %v, want the one that answers used", err)
	}
	defer func() { _ = client.Close() }()
	put(t, client, "k", "0") // it outlives the context

	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	begun := time.Now()
	if _, err := etcdclient.Connect(ctx, silent, access, nil); !errors.Is(err, context.Canceled) || time.Since(begun) > 4*time.Second { // it would try for 5 s
		t.Errorf("silent members, given up after 100 ms: got %v after %v, want canceled, within 4s", err, time.Since(begun))
	}
	access.Password = etcdclient.FixedPassword("wrong")
	if _, err := etcdclient.Connect(t.Context(), append(slices.Clone(silent), etcd.Endpoints()...), access, nil); err == nil || etcdclient.Silent(err) {
		t.Errorf("a wrong password: got %v, want etcd's refusal", err)
	}
}
