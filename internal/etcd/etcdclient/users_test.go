package etcdclient_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
)

// A client works at an etcd that demands a user, also while the first member of its list is
// away, and is refused with a wrong password.
func TestUsersAreTaken(t *testing.T) {
	etcd := etcdtest.Start(t)
	admin := etcd.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, err := range []error{
		second(admin.UserAdd(ctx, "root", "secret")), second(admin.RoleAdd(ctx, "root")),
		second(admin.UserGrantRole(ctx, "root", "root")), second(admin.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	defer func() { // for the test's own client
		client, err := etcdclient.Connect(etcd.Endpoints(), etcdclient.Access{User: "root", Password: "secret"}, nil)
		if err == nil {
			_, err = client.AuthDisable(ctx)
			_ = client.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}()
	const nobody = "http://127.0.0.1:1"
	client, err := etcdclient.Connect(append([]string{nobody}, etcd.Endpoints()...), etcdclient.Access{User: "root", Password: "secret"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	watch := client.Watch(ctx, "k")
	lease, err := client.Grant(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, "k", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if got := <-watch; len(got.Events) != 1 || string(got.Events[0].Kv.Value) != "v" {
		t.Errorf("got %+v (%v), want one event with v", got.Events, got.Err())
	}
	if err := etcdclient.Check(ctx, client, etcd.Endpoints()); err != nil {
		t.Errorf("check: got %v, want no error", err)
	}
	if client, err := etcdclient.Connect(etcd.Endpoints(), etcdclient.Access{User: "root", Password: "wrong"}, nil); err == nil {
		_ = client.Close()
		t.Error("a wrong password is taken")
	}
}

func second(_ any, err error) error { return err }
