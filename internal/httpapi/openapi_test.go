package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// The OpenAPI document has each call of AdminService that sends and takes no file, by GET if it
// changes nothing. A stream has one message a line.
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
		if m.IsStreamingClient() || m.Name() == "Backup" {
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
		lines := strings.Contains(string(doc.Paths[path][verb]), "application/x-ndjson")
		message := strings.Contains(string(doc.Paths[path][verb]), `"$ref": "#/definitions/v1`+string(m.Output().Name())+`"`)
		if lines != m.IsStreamingServer() || !message {
			t.Errorf("%s: answers with lines: %v, with %s: %v; want %v, true (api/openapi.yaml)", path, lines, m.Output().Name(), message, m.IsStreamingServer())
		}
		delete(doc.Paths, path)
	}
	for path := range doc.Paths {
		t.Errorf("the OpenAPI document: got the path %s, want only calls of AdminService", path)
	}
}
