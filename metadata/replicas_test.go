package metadata

import "testing"

// A single replica keeps nothing alive of what it was read from, whatever else the object has.
func TestASingleReplicaKeepsNoList(t *testing.T) {
	s := New(Options{})
	o := s.store(&draft{shard: shardOf("", "k"), key: "k", id: 1, size: 1, replicas: make([]replica, 2)})
	if o.none() {
		t.Fatal("an empty store: got no room for an object, want some")
	}
	if o.setReplicas(make([]replica, 1)); o.extra().replicas != nil {
		t.Errorf("further replicas: got a list of %d, want none", len(o.extra().replicas))
	}
}
