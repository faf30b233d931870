package app

import (
	"testing"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/promote"
)

// Who asks a node for its status and is told that it is the primary can call it. A term
// begins before its calls are taken.
func TestPrimaryTakesCalls(t *testing.T) {
	for name, etcd := range map[string][]string{"lone": nil, "cluster": etcdtest.Start(t).Endpoints()} {
		t.Run(name, func(t *testing.T) {
			m := run(t, settings(promote.Primary, "a", etcd))
			m.serves()
			master, err := m.gate.Master()
			if err != nil {
				t.Fatal(err)
			}
			role := func() pb.Role {
				s, err := m.admin.Status(t.Context(), &pb.StatusRequest{})
				if err != nil {
					t.Fatal(err)
				}
				return s.GetNode().GetRole()
			}
			m.gate.Close(service.Hint{})
			if got := role(); got != pb.Role_ROLE_PROMOTING {
				t.Errorf("%v takes no calls, want the role PROMOTING", got)
			}
			m.gate.Open(master)
			if got := role(); got != pb.Role_ROLE_PRIMARY {
				t.Errorf("%v takes calls, want the role PRIMARY", got)
			}
		})
	}
}

// A master that keeps nothing gives other object ids after a restart: who ends a put of
// before, by its id, does not end a later one of the key.
func TestObjectIDsAfterARestartWithoutHA(t *testing.T) {
	id := uuid.New()
	reserve := func() (*member, *client.Client, client.Reservation) {
		m := run(t, settings(promote.Primary, "a", nil))
		m.serves()
		c := writer(t, client.Config{Addresses: []string{m.RPCAddress()}, ClientID: id})
		r, err := c.PutStart(t.Context(), client.PutItem{Key: "k", Size: 100}, client.PutConfig{})
		if err != nil {
			t.Fatal(err)
		}
		return m, c, r
	}
	m, _, before := reserve()
	m.end()
	_, c, after := reserve()
	if err := c.PutEnd(t.Context(), before.Ref(), client.SelectAll); errs.KindOf(err) != errs.ObjectNotFound {
		t.Errorf("put %d of before the restart ends put %d of after it: got %v, want ObjectNotFound", before.ID, after.ID, err)
	}
	if err := c.PutEnd(t.Context(), after.Ref(), client.SelectAll); err != nil {
		t.Error(err)
	}
}

// Memory that leaves quarantine is given out again although nothing else happens: a master
// without HA has no other commits then, and one that is full refuses puts before there is one.
func TestQuarantineEndsWithoutHA(t *testing.T) {
	m := run(t, settings(promote.Primary, "a", nil))
	m.serves()
	c := writer(t, client.Config{Addresses: []string{m.RPCAddress()}})
	const most = 700 << 10 // of 1 MiB
	r, err := c.PutStart(t.Context(), client.PutItem{Key: "k", Size: most}, client.PutConfig{})
	if err == nil {
		err = c.PutEnd(t.Context(), r.Ref(), client.SelectAll)
	}
	if err == nil {
		_, err = c.GetReplicaList(t.Context(), "k")
	}
	if err == nil {
		err = c.Remove(t.Context(), "k", client.Removal{Force: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutStart(t.Context(), client.PutItem{Key: "l", Size: most}, client.PutConfig{}); errs.KindOf(err) != errs.NoAvailableHandle {
		t.Errorf("a put into memory that a reader may read: got %v, want NoAvailableHandle", err)
	}
	m.until("the end of quarantine", func(s *pb.StatusResponse) bool { return s.GetState().GetQuarantinedBytes() == 0 })
	if _, err := c.PutStart(t.Context(), client.PutItem{Key: "l", Size: most}, client.PutConfig{}); err != nil {
		t.Errorf("a put when quarantine has ended: got error %v, want the memory given out again", err)
	}
}
