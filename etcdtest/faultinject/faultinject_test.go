package faultinject_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every operation fails once, in order; what is lost on the way there is not
// done, what is lost on the way back is.
func TestEachOperationFailsOnce(t *testing.T) {
	etcd := etcdtest.Start(t)
	direct := etcd.Client(t)
	for kind, want := range map[faultinject.Kind][]string{
		faultinject.QuestionLost: {"the call of /etcdserverpb.KV/Put", "the call of /etcdserverpb.KV/Range", "the opening of /etcdserverpb.Watch/Watch", "a message sent of /etcdserverpb.Watch/Watch", ""},
		faultinject.AnswerLost:   {"the call of /etcdserverpb.KV/Put", "the call of /etcdserverpb.KV/Range", "message 1 received of /etcdserverpb.Watch/Watch", "message 2 received of /etcdserverpb.Watch/Watch", ""},
		faultinject.NoSpace:      {"the call of /etcdserverpb.KV/Put", ""},
	} {
		var faults []string
		for run := range faultinject.Runs(kind) {
			if _, err := direct.Put(t.Context(), "k", "before"); err != nil {
				t.Fatal(err)
			}
			c := etcd.Client(t, run.DialOptions()...)
			run.Arm()
			_, putErr := c.Put(t.Context(), "k", "after")
			_, getErr := c.Get(t.Context(), "k")
			watch := c.Watch(t.Context(), "k", clientv3.WithRev(1))
			seen := <-watch
			run.Disarm()
			faults = append(faults, run.Fault())
			var errs []error
			for _, err := range []error{putErr, getErr, seen.Err()} {
				if err != nil {
					errs = append(errs, err)
				}
			}
			if failed := run.Fault() != ""; failed != (len(errs) == 1) {
				t.Errorf("%v: with the fault %q got the errors %v, want one error if there was a fault, and none if not",
					run, run.Fault(), errs)
			} else if failed && kind == faultinject.NoSpace {
				if !errors.Is(errs[0], rpctypes.ErrNoSpace) {
					t.Errorf("%v: got %v, want etcd's ErrNoSpace", run, errs[0])
				}
			} else if failed && (status.Code(errs[0]) != codes.Aborted || !strings.Contains(errs[0].Error(), kind.String())) {
				t.Errorf("%v: got %v, want the code Aborted and the name of the fault", run, errs[0])
			}
			value, err := direct.Get(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if done := string(value.Kvs[0].Value) == "after"; done != (putErr == nil || kind != faultinject.QuestionLost) {
				t.Errorf("%v: the put got %v and is done: %v; want it done unless its question was lost", run, putErr, done)
			}
		}
		if !slices.Equal(faults, want) {
			t.Errorf("%v: got the faults %q, want %q", kind, faults, want)
		}
	}
}
