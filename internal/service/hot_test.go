package service_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// replicating has a primary with segments x, y and z that copies what is read 8 times in
// 10 s. Host h has x and y.
func replicating(t *testing.T, rules service.Replication, play func(t *testing.T, f *fixture, reads func(n int), tasks func() []service.TaskInfo)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rules.Window, rules.Rate, rules.Replicas = 10*time.Second, .8, 2
		m := newFixture(t, func(c *service.Master) {
			c.Liveness, c.Replication = service.NewLiveness(time.Hour, 0, clock.Runtime(), c.Store), rules
		})
		for n, host := range map[byte]string{10: "h", 11: "h", 12: "other"} {
			name := string(rune('x' + n - 10))
			want(t, "MountSegment", m.MountSegment(t.Context(), segment.Spec{
				ID: segment.ID{n}, Name: name, Base: uint64(n) << 40, Size: 1 << 20, Endpoint: name + ":1", Client: owner(n), HostID: host,
			}), errs.OK)
		}
		want(t, "UnmountSegment", m.UnmountSegment(t.Context(), segment.ID{1}, nil), errs.OK) // the fixture's
		m.putOn(t, "x", "k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = m.DriveTasks(ctx, zerolog.Nop()) }()
		reads := func(n int) {
			for range n {
				if _, err := m.GetReplicaList(t.Context(), "default", "k"); err != nil {
					t.Error(err)
				}
			}
		}
		play(t, m, reads, func() []service.TaskInfo {
			time.Sleep(1500 * time.Millisecond) // a pass
			list, err := m.FetchTasks(t.Context(), owner(10), 100)
			want(t, "FetchTasks", err, errs.OK)
			return list
		})
	})
}

// An object that is read often gets a second replica, on another host, by a task of
// its owner; no third one.
func TestHotObjectsAreCopied(t *testing.T) {
	replicating(t, service.Replication{Enforce: true}, func(t *testing.T, f *fixture, reads func(int), tasks func() []service.TaskInfo) {
		reads(7)
		if list := tasks(); len(list) != 0 {
			t.Errorf("after 7 reads: got %d tasks, want none", len(list))
		}
		reads(1)
		list := tasks()
		if len(list) != 1 || list[0].Move || list[0].Source != "x" || list[0].Targets[0] != "z" {
			t.Errorf("after 8 reads: got %+v, want a copy from x to z, on the other host", list)
			return
		}
		f.p.Pass(11 * time.Second)
		reads(20)
		if list := tasks(); len(list) != 0 {
			t.Errorf("in the next window: got %d tasks, want none for a minute", len(list))
		}
		copying := transferOf(10, "k", "x", "z")
		_, err := f.CopyStart(t.Context(), copying)
		want(t, "CopyStart", err, errs.OK)
		want(t, "CopyEnd", f.CopyEnd(t.Context(), copying), errs.OK)
		want(t, "the end of the task", f.EndTask(t.Context(), owner(10), list[0].ID, metadata.TaskSucceeded, ""), errs.OK)
		f.p.Pass(2 * time.Minute)
		reads(20)
		if list := tasks(); len(list) != 0 {
			t.Errorf("of an object with 2 replicas: got %d tasks, want none", len(list))
		}
	})
}

// Reads of a longer time than a window do not add up.
func TestHotWindowEnds(t *testing.T) {
	replicating(t, service.Replication{Enforce: true}, func(t *testing.T, f *fixture, reads func(int), tasks func() []service.TaskInfo) {
		for range 5 {
			reads(7)
			f.p.Pass(10 * time.Second)
		}
		if list := tasks(); len(list) != 0 {
			t.Errorf("got %d tasks, want none", len(list))
		}
	})
}

// Nothing is copied if that is only to be observed.
func TestHotObjectsAreObserved(t *testing.T) {
	replicating(t, service.Replication{Observe: true}, func(t *testing.T, _ *fixture, reads func(int), tasks func() []service.TaskInfo) {
		reads(20)
		if list := tasks(); len(list) != 0 {
			t.Errorf("got %d tasks, want none", len(list))
		}
	})
}

// A copy goes nowhere if it would fill a segment, or all are closed.
func TestHotTargets(t *testing.T) {
	replicating(t, service.Replication{Enforce: true}, func(t *testing.T, f *fixture, reads func(int), tasks func() []service.TaskInfo) {
		for n := byte(11); n <= 12; n++ {
			want(t, "GracefulUnmountSegment", f.GracefulUnmountSegment(t.Context(), owner(n), segment.ID{n}, time.Hour), errs.OK)
		}
		reads(20)
		if list := tasks(); len(list) != 0 {
			t.Errorf("got %+v, want no target", list)
		}
	})
}
