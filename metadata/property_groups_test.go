package metadata_test

import (
	"fmt"
	"slices"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

// groupOf returns the group of a key, "" for none.
func groupOf(key string) string {
	switch key {
	case "0", "1", "2":
		return "g"
	case "3", "4":
		return "h"
	}
	return ""
}

// A watchedGroup is a group, with what a cutoff may do to it.
type watchedGroup struct {
	name      string
	leased    metadata.Time // until when a member was, when the cutoff was selected
	evictable map[metadata.ObjectID]bool
}

// watch returns a group as it is now.
func (w *world) watch(name string, cutoff *eviction.Cutoff) watchedGroup {
	g := watchedGroup{name: name, evictable: map[metadata.ObjectID]bool{}}
	for i := range 8 {
		o, err := w.primary.Inspect("default", fmt.Sprint(i))
		if err != nil || o.Group != name {
			continue
		}
		g.leased = max(g.leased, w.leased[o.ID])
		inMemory := slices.ContainsFunc(o.Replicas, func(r metadata.Descriptor) bool { return r.Kind == metadata.Memory })
		e := w.primary.Lock("default", o.Key)
		finished := e.Removable(true, w.now) == nil
		e.Unlock()
		if inMemory && finished && !o.HardPin && (!o.SoftPin || cutoff.IncludePinned) {
			g.evictable[o.ID] = true
		}
	}
	return g
}

// watchGroups is called before the commit of a cutoff that was just selected, and returns a
// function to call after it. Of the members of a group that can be evicted all the time, the
// cutoff must evict all or none, and none while a member is leased.
func (w *world) watchGroups(cutoff *eviction.Cutoff) func() {
	groups, before := []watchedGroup{w.watch("g", cutoff), w.watch("h", cutoff)}, true
	since := w.now
	return func() {
		for _, g := range groups {
			now, gone := w.watch(g.name, cutoff), 0
			for id := range g.evictable {
				switch {
				case now.evictable[id]:
				case before:
					delete(g.evictable, id)
				default:
					gone++
				}
			}
			switch {
			case gone == 0:
			case gone < len(g.evictable):
				w.t.Fatalf("a cutoff evicted a part of group %s: got %d of %d members gone, want all or none",
					g.name, gone, len(g.evictable))
			case g.leased > since:
				w.t.Fatalf("L: a cutoff at %d evicted group %s, want it kept: a member was leased until %d",
					since, g.name, g.leased)
			case gone > 1:
				w.grouped++
			}
		}
		before = false
	}
}
