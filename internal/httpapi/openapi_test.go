package httpapi

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// The OpenAPI document has each call of AdminService that is no stream, by GET if it
// changes nothing.
func TestOpenAPIHasEachCall(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	methods := pb.File_understudy_v1_admin_proto.Services().ByName("AdminService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		if m.IsStreamingClient() || m.IsStreamingServer() {
			continue
		}
		verb := "post"
		if m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			verb = "get"
		}
		path := AdminPath + string(m.Name())
		if len(doc.Paths[path]) != 1 || doc.Paths[path][verb] == nil {
			t.Errorf("%s: %d verbs; want %s alone (api/http.yaml, make generate)", path, len(doc.Paths[path]), verb)
		}
		delete(doc.Paths, path)
	}
	for path := range doc.Paths {
		t.Errorf("%s is no call", path)
	}
}
