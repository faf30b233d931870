package app

import (
	"testing"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/promote"
)

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
