package understudyv1_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	understudyv1 "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/metadata"
)

// What a repeated call does, as the .proto files mark it.
const (
	reads    = descriptorpb.MethodOptions_NO_SIDE_EFFECTS
	repeats  = descriptorpb.MethodOptions_IDEMPOTENT
	mutates  = descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
	anything = -1
)

// services is the contract as a table. The first two services hold the 26 calls
// that the fork and HEAD of the C++ master share, and BatchRemove.
var services = map[string]map[string]descriptorpb.MethodOptions_IdempotencyLevel{
	"ObjectService": {
		"ExistKey": repeats, "BatchExistKey": repeats,
		"GetReplicaList": repeats, "BatchGetReplicaList": repeats, "GetReplicaListByRegex": repeats,
		"PutStart": mutates, "PutEnd": mutates, "PutRevoke": mutates,
		"BatchPutStart": mutates, "BatchPutEnd": mutates, "BatchPutRevoke": mutates,
		"Remove": mutates, "BatchRemove": mutates, "RemoveByRegex": mutates, "RemoveAll": mutates,
		"BatchReplicaClear": mutates,
		"KvEvents":          reads,
	},
	"ClientService": {
		"ServiceReady": reads, "Ping": repeats,
		"MountSegment": mutates, "ReMountSegment": mutates, "UnmountSegment": mutates,
		"BatchQueryIp": reads, "GetFsdir": reads, "GetStorageConfig": reads,
		"MountLocalDiskSegment": mutates, "OffloadObjectHeartbeat": mutates, "NotifyOffloadSuccess": mutates,
	},
	"SnapshotService": {"StreamSnapshot": reads},
	"AdminService": {
		"Status": reads, "Digest": reads, "Handover": repeats, "StartEmpty": repeats, "Refound": repeats, "Backup": reads, "History": reads, "Forget": repeats,
		"PauseTakeover": repeats,
		"AddMember":     repeats, "RemoveMember": repeats, "Events": reads,
		"ListSegments": reads, "ListClients": reads, "ListDrainJobs": reads, "ListKeys": reads, "QueryKey": reads, "DumpRanges": reads,
	},
}

func TestServices(t *testing.T) {
	found := make(map[string]bool)
	for _, m := range methods(t) {
		name := string(m.Parent().Name()) + "." + string(m.Name())
		found[name] = true
		want, ok := services[string(m.Parent().Name())][string(m.Name())]
		if !ok {
			t.Errorf("%s is not in the table", name)
			continue
		}
		if got := idempotency(m); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for service, calls := range services {
		for call := range calls {
			if !found[service+"."+call] {
				t.Errorf("%s.%s is not in the contract", service, call)
			}
		}
	}
}

func TestEveryAnswerBeginsWithAHeader(t *testing.T) {
	answers := []protoreflect.MessageDescriptor{(&understudyv1.ErrorDetail{}).ProtoReflect().Descriptor()}
	for _, m := range methods(t) {
		answers = append(answers, m.Output())
	}
	for _, answer := range answers {
		f := answer.Fields().ByName("header")
		if f == nil || f.Number() != 1 || f.Kind() != protoreflect.MessageKind || f.Message().Name() != "ResponseHeader" {
			t.Errorf("%s: field 1 must be ResponseHeader header", answer.Name())
		}
	}
}

func TestMutationsCarryARequestID(t *testing.T) {
	for _, m := range methods(t) {
		request := m.Input()
		f := request.Fields().ByName("request_id")
		switch {
		case idempotency(m) != mutates:
			if f != nil {
				t.Errorf("%s: a call that may be repeated at any time needs no request_id", request.Name())
			}
		case f == nil || f.Number() != 2 || f.Kind() != protoreflect.Fixed64Kind:
			t.Errorf("%s: field 2 must be fixed64 request_id", request.Name())
		}
	}
}

func TestRequestsSayWhoIsAsking(t *testing.T) {
	for _, m := range methods(t) {
		request, want := m.Input(), ""
		switch {
		case m.Name() == "KvEvents": // of all tenants: each event names its own
			continue
		case m.Parent().Name() == "ObjectService", hasField(request, "key"), hasField(request, "keys"):
			want = "tenant"
		case idempotency(m) == mutates:
			want = "client_id"
		default:
			continue
		}
		if f := request.Fields().ByName(protoreflect.Name(want)); f == nil || f.Number() != 1 || f.Kind() != protoreflect.StringKind {
			t.Errorf("%s: field 1 must be string %s", request.Name(), want)
		}
	}
}

// A batch that acknowledges mutations says so for every item: by a payload or
// by a count.
func TestBatchAnswersAccountForEveryItem(t *testing.T) {
	for _, m := range methods(t) {
		if m.Parent().Name() != "ObjectService" || !strings.HasPrefix(string(m.Name()), "Batch") || m.Name() == "BatchReplicaClear" {
			continue // BatchReplicaClear lists what it cleared and never errs per key, like the C++ master
		}
		answer := m.Output()
		if f := answer.Fields().ByName("errors"); f == nil || !f.IsList() || f.Message().Name() != "ItemError" {
			t.Errorf("%s: needs repeated ItemError errors", answer.Name())
		}
		if !hasField(answer, "exists") && !hasField(answer, "objects") && !hasField(answer, "succeeded") {
			t.Errorf("%s: has neither a payload per item nor a count of successes", answer.Name())
		}
	}
}

func TestPagesComeInPairs(t *testing.T) {
	for _, m := range methods(t) {
		in, out := m.Input(), m.Output()
		if n := count(hasField(in, "page_size"), hasField(in, "page_token"), hasField(out, "next_page_token")); n != 0 && n != 3 {
			t.Errorf("%s: needs page_size, page_token and next_page_token, or none of them", m.Name())
		}
	}
}

// timeWords are what names of durations and times are made of.
var timeWords = []string{"ttl", "timeout", "duration", "remaining", "age", "time", "until"}

func TestFields(t *testing.T) {
	for _, message := range messages(t) {
		for i := range message.Fields().Len() {
			f := message.Fields().Get(i)
			name := string(f.Name())
			if want := kindByName(name); want != anything && f.Kind() != want {
				t.Errorf("%s.%s is %v, want %v", message.Name(), name, f.Kind(), want)
			}
			if isTime(name) && !strings.HasSuffix(name, "_ms") {
				t.Errorf("%s.%s: a time must say its unit, _ms", message.Name(), name)
			}
			if f.Kind() == protoreflect.DoubleKind || f.Kind() == protoreflect.FloatKind {
				t.Errorf("%s.%s: floating point has no exact range", message.Name(), name)
			}
		}
	}
}

// kindByName returns what a field of some name must be, or anything.
func kindByName(name string) protoreflect.Kind {
	switch {
	case name == "object_id":
		return protoreflect.Uint64Kind // JSON shows it as a string
	case name == "request_id", name == "instance_id", name == "object_checksum":
		return protoreflect.Fixed64Kind
	case strings.HasSuffix(name, "_id"), strings.HasSuffix(name, "_ids"):
		return protoreflect.StringKind
	case strings.HasSuffix(name, "_bytes"):
		return protoreflect.Uint64Kind
	}
	return anything
}

func isTime(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "_"), func(word string) bool { return slices.Contains(timeWords, word) })
}

// No wall clock can cross the wire if the contract imports no type that holds
// one.
func TestFilesImportOnlyOneAnother(t *testing.T) {
	for _, file := range files(t) {
		for i := range file.Imports().Len() {
			if path := file.Imports().Get(i).Path(); !strings.HasPrefix(path, "understudy/v1/") {
				t.Errorf("%s imports %s", file.Path(), path)
			}
		}
	}
}

func TestKindsAreThoseOfErrs(t *testing.T) {
	const prefix = "KIND_"
	known := make(map[string]bool)
	for k := errs.OK + 1; k == errs.Internal || k.String() != errs.Internal.String(); k++ {
		known[prefix+k.String()] = true
		if _, ok := understudyv1.Kind_value[prefix+k.String()]; !ok {
			t.Errorf("errs has %v, the contract has not", k)
		}
	}
	if len(known) < 30 {
		t.Fatalf("only %d kinds found in errs", len(known))
	}
	for number, name := range understudyv1.Kind_name {
		if number != 0 && !known[name] {
			t.Errorf("the contract has %s, errs has not", name)
		}
		if number < 0 || number > 127 {
			t.Errorf("%s = %d takes more than one byte", name, number)
		}
	}
	if name := understudyv1.Kind_name[0]; name != "KIND_UNSPECIFIED" {
		t.Errorf("0 is %s: it must stand for no error", name)
	}
	if len(understudyv1.Kind_name) != len(known)+1 || len(understudyv1.Kind_value) != len(known)+1 {
		t.Errorf("%d names for %d values of Kind, want %d of each", len(understudyv1.Kind_value), len(understudyv1.Kind_name), len(known)+1)
	}
}

// Front ends convert these enumerations by number.
func TestEnumerationsAreThoseOfMetadata(t *testing.T) {
	for _, c := range []struct {
		name           string
		contract, core int
	}{
		{"SelectMemory", int(understudyv1.ReplicaSelector_REPLICA_SELECTOR_MEMORY), int(metadata.SelectMemory)},
		{"SelectDisk", int(understudyv1.ReplicaSelector_REPLICA_SELECTOR_DISK), int(metadata.SelectDisk)},
		{"SelectLocalDisk", int(understudyv1.ReplicaSelector_REPLICA_SELECTOR_LOCAL_DISK), int(metadata.SelectLocalDisk)},
		{"SelectAll", int(understudyv1.ReplicaSelector_REPLICA_SELECTOR_ALL), int(metadata.SelectAll)},
		{"Processing", int(understudyv1.ReplicaStatus_REPLICA_STATUS_PROCESSING), int(metadata.Processing)},
		{"Complete", int(understudyv1.ReplicaStatus_REPLICA_STATUS_COMPLETE), int(metadata.Complete)},
	} {
		if c.contract != c.core {
			t.Errorf("%s is %d in the contract and %d in metadata", c.name, c.contract, c.core)
		}
	}
}

func TestLimitsAreThoseOfTheServer(t *testing.T) {
	for _, c := range []struct {
		name             string
		contract, server int64
	}{
		{"MaxKeyBytes", understudyv1.MaxKeyBytes, metadata.MaxKeyBytes},
		{"MaxTenantBytes", understudyv1.MaxTenantBytes, metadata.MaxTenantBytes},
		{"MaxNameBytes", understudyv1.MaxNameBytes, metadata.MaxNameBytes},
		{"MaxReplicas", understudyv1.MaxReplicas, metadata.MaxReplicas},
		{"DefaultMaxMessageBytes", understudyv1.DefaultMaxMessageBytes, config.Default(config.Primary).Listen.MaxMessageBytes},
	} {
		if c.contract != c.server {
			t.Errorf("%s is %d in the contract and %d in the server", c.name, c.contract, c.server)
		}
	}
	if understudyv1.DefaultTenant != metadata.DefaultTenant {
		t.Errorf("the default tenant is %q in the contract and %q in the server", understudyv1.DefaultTenant, metadata.DefaultTenant)
	}
}

func files(t *testing.T) []protoreflect.FileDescriptor {
	t.Helper()
	var all []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("understudy.v1", func(f protoreflect.FileDescriptor) bool {
		all = append(all, f)
		return true
	})
	if len(all) < 6 {
		t.Fatalf("only %d files: this is not the contract", len(all))
	}
	return all
}

func methods(t *testing.T) []protoreflect.MethodDescriptor {
	t.Helper()
	var all []protoreflect.MethodDescriptor
	for _, file := range files(t) {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				all = append(all, service.Methods().Get(j))
			}
		}
	}
	return all
}

func messages(t *testing.T) []protoreflect.MessageDescriptor {
	t.Helper()
	var all []protoreflect.MessageDescriptor
	for _, file := range files(t) {
		for i := range file.Messages().Len() {
			all = append(all, file.Messages().Get(i))
		}
	}
	return all
}

func idempotency(m protoreflect.MethodDescriptor) descriptorpb.MethodOptions_IdempotencyLevel {
	return m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel()
}

func hasField(m protoreflect.MessageDescriptor, name protoreflect.Name) bool {
	return m.Fields().ByName(name) != nil
}

func count(all ...bool) int {
	n := 0
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}
