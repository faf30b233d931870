package etcdserver

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Who takes nothing any more loses its connection, and with it its place.
func TestCopyEndsForOneThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, callerOwn := net.Pipe()
		etcd, etcdOwn := net.Pipe()
		defer callerOwn.Close()
		ended := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(ended)
			copyAll(caller, etcd)
		}()
		if _, err := etcdOwn.Write([]byte("an answer")); err != nil {
			t.Fatal(err)
		}
		<-ended
		if took := time.Since(began); took != writeTimeout {
			t.Errorf("it ended after %v, want %v", took, writeTimeout)
		}
	})
}
