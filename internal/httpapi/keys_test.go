package httpapi

import (
	"encoding/json"
	"testing"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Each kind of replica has a list of its own; those in progress are in none.
func TestAnswerForAllKindsOfReplicas(t *testing.T) {
	o := metadata.Object{Replicas: []metadata.Descriptor{
		{Kind: metadata.Disk, Status: metadata.Complete, Path: "/mnt/f", Size: 7},
		{Kind: metadata.LocalDisk, Status: metadata.Complete, Client: segment.ClientID{7: 1, 15: 2}, Endpoint: "a:1", Size: 8},
		{Kind: metadata.Memory, Size: 9},
	}}
	got, err := json.Marshal(answerFor(o, nil))
	want := `{"ok":true,"error":null,"values":[],"disk_values":[{"file_path":"/mnt/f","object_size":7}],` +
		`"local_disk_values":[{"client_id":"1-2","object_size":8,"transport_endpoint":"a:1"}],"nof_values":null}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
