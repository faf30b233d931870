package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

func TestClose(t *testing.T) {
	cl := newCluster(t, 1)
	cl.lead(0)
	c := cl.connectAll()
	mountMemory(t, c)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	cl.log.refusing(func() error {
		entered <- struct{}{}
		<-release
		return nil
	})
	defer close(release)
	change := make(chan error, 1)
	go func() {
		_, err := c.PutStart(context.Background(), client.PutItem{Key: "k", Size: 1}, client.PutConfig{})
		change <- err
	}()
	<-entered
	idle := connect(t, client.Config{Addresses: []string{"127.0.0.1:1"}})
	waiting := make(chan error, 1)
	go func() { _, err := idle.ExistKey(context.Background(), "k"); waiting <- err }()
	within(t, "the call to begin", func() bool { return client.Calls(idle) == 1 })

	c.Close()
	idle.Close()
	err := <-change
	wantKind(t, "a change in progress", err, errs.Unresolved)
	if !errors.Is(err, client.ErrClosed) {
		t.Errorf("%v does not say why: want ErrClosed", err)
	}
	err = <-waiting
	wantKind(t, "a call that waits", err, errs.Unavailable)
	if !errors.Is(err, client.ErrClosed) {
		t.Errorf("%v does not say why: want ErrClosed", err)
	}
	_, err = c.ExistKey(t.Context(), "k")
	if !errors.Is(err, client.ErrClosed) {
		t.Errorf("afterwards: got %v, want client.ErrClosed", err)
	}
	if err := c.MountSegment(t.Context(), memory(1<<40)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("afterwards: got %v, want client.ErrClosed", err)
	}
	c.Close()
}
