// Package python_test checks what the Python client has taken over from Go's
// side: the stubs of the protos, and the kinds of errors. It needs no Python.
package python_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

var serialized = regexp.MustCompile(`AddSerializedFile\(b'((?:[^'\\]|\\.)*)'\)`)

// descriptor reads the descriptor of a proto file out of its Python stub.
func descriptor(t *testing.T, stub string) *descriptorpb.FileDescriptorProto {
	t.Helper()
	text, err := os.ReadFile(stub)
	if err != nil {
		t.Fatal(err)
	}
	found := serialized.FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s: got no descriptor, want one (make generate)", stub)
	}
	b, err := strconv.Unquote(`"` + strings.ReplaceAll(string(found[1]), `\'`, `'`) + `"`)
	if err != nil {
		t.Fatalf("the descriptor in %s: got error %v, want a quoted text (make generate)", stub, err)
	}
	d := new(descriptorpb.FileDescriptorProto)
	if err := proto.Unmarshal([]byte(b), d); err != nil {
		t.Fatalf("the descriptor in %s: got error %v, want that of a proto file (make generate)", stub, err)
	}
	return d
}

func TestStubsAreThoseOfTheProtos(t *testing.T) {
	for name, file := range map[string]protoreflect.FileDescriptor{
		"common": pb.File_understudy_v1_common_proto, "errors": pb.File_understudy_v1_errors_proto, "replica": pb.File_understudy_v1_replica_proto,
		"object": pb.File_understudy_v1_object_proto, "client": pb.File_understudy_v1_client_proto,
	} {
		got := descriptor(t, filepath.Join("src/understudy/v1", name+"_pb2.py"))
		want := protodesc.ToFileDescriptorProto(file)
		stripJSONNames(want)
		if !proto.Equal(got, want) {
			t.Errorf("%s_pb2.py is not that of %s.proto (make generate)\n got %v\nwant %v", name, name, got, want)
		}
		types, err := os.ReadFile(filepath.Join("src/understudy/v1", name+"_pb2.pyi"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range want.GetMessageType() {
			for _, f := range m.GetField() {
				if !strings.Contains(string(types), strings.ToUpper(f.GetName())+"_FIELD_NUMBER") {
					t.Errorf("%s_pb2.pyi: got no field %s, want it, as in the proto (make generate)", name, f.GetName())
				}
			}
		}
	}
}

// stripJSONNames takes out what protoc leaves out.
func stripJSONNames(file *descriptorpb.FileDescriptorProto) {
	for _, m := range file.GetMessageType() {
		for _, f := range m.GetField() {
			f.JsonName = nil
		}
	}
}

// row is a line of the table of kinds in package errs.
var row = regexp.MustCompile(`(?m)^\t(\w+): +\{"(\w+)", (-?\d+), codes\.\w+, (true|false)\},$`)

func TestErrorsAreThoseOfGo(t *testing.T) {
	table, err := os.ReadFile("../../errs/errs.go")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("src/understudy/errors.py")
	if err != nil {
		t.Fatal(err)
	}
	kinds := row.FindAllStringSubmatch(string(table), -1)
	if want := len(pb.Kind_name); len(kinds) != want { // with OK, as the contract has one unspecified
		t.Fatalf("found %d kinds in errs.go, want %d", len(kinds), want)
	}
	for _, k := range kinds {
		ident, name, number, retry := k[1], k[2], k[3], k[4]
		if ident == "OK" {
			continue
		}
		if kind, ok := errs.FromName(name); !ok || strconv.Itoa(int(kind.Number())) != number {
			t.Fatalf("errs.go: got kind %s with %s, want one that errs has", name, number)
		}
		class := fmt.Sprintf(`class %s\(Error\):\n    """.+"""\n\n    name, number, retryable = "%s", %s, %s\n`,
			ident, name, number, strings.ToUpper(retry[:1])+retry[1:])
		if !regexp.MustCompile(class).Match(module) {
			t.Errorf("errors.py: got no class %s with %s, %s and %s, want one, as in errs.go", ident, name, number, retry)
		}
	}
}
