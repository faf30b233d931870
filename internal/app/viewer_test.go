package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// A person calls a node, with a certificate or a token.
type person struct {
	t     *testing.T
	node  *member
	tls   *tls.Config
	token string
}

// web makes a request over HTTP, as a page's form if there is one.
func (p person) web(method, path, form string) (code int, body string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, "https://"+p.node.cfg.Node.HTTPAddress+path, strings.NewReader(form))
	if err != nil {
		p.t.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: p.tls, DisableKeepAlives: true}}).Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// refused makes a call over gRPC with an empty request, and reports whether the caller lacks
// the role.
func (p person) refused(conn *grpc.ClientConn, method string) bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(p.t.Context(), "authorization", "Bearer "+p.token), 20*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := stream.SendMsg(&emptypb.Empty{}); err == nil {
		_ = stream.CloseSend()
	}
	err = stream.RecvMsg(&emptypb.Empty{})
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable || code == codes.Unimplemented {
		p.t.Fatalf("%s: got %v, want an answer", method, err)
	}
	return status.Code(err) == codes.PermissionDenied && strings.Contains(err.Error(), " is for the role ")
}

// watched starts a primary and a standby that could take over, with a token of an operator and
// one of a viewer.
func watched(t *testing.T) (ours *certs.Authority, operator, viewer person) {
	t.Helper()
	ours = newAuthority(t)
	files, tokens := nodeFiles(t, ours), filepath.Join(t.TempDir(), "tokens")
	none := tlsOf(t, certs.Files{CA: ours.File()})
	operator = person{t: t, tls: none, token: strings.Repeat("0123456789", 4)}
	viewer = person{t: t, tls: none, token: strings.Repeat("9876543210", 4)}
	if err := os.WriteFile(tokens, []byte("operator ci "+operator.token+"\nviewer board "+viewer.token), 0o600); err != nil {
		t.Fatal(err)
	}
	c := secure(settings(config.Primary, "a", []string{}), files)
	c.Security.Roles, c.Security.Tokens, c.Debug.Pprof = true, tokens, true
	a := run(t, c)
	a.serves()
	c = secure(settings(config.Standby, "b", []string{"https://" + a.etcdEndpoint(t)}), files)
	c.Security.Roles, c.Security.Tokens = true, tokens
	run(t, c).promotable()
	a.knows(1)
	operator.node, viewer.node = a, a
	return ours, operator, viewer
}

// A viewer reads every page of the console, without the forms of orders, which an operator
// gets. Other roles get nothing of it.
func TestViewerReadsTheConsole(t *testing.T) {
	t.Parallel()
	ours, operator, viewer := watched(t)
	as := func(role string, id uuid.UUID) person {
		return person{t: t, node: viewer.node, tls: tlsOf(t, issue(t, ours, role+"-caller", certs.Subject{Name: "a " + role, Role: role, ClientID: id}))}
	}
	client, node, another := as("client", uuid.New()), as("node", uuid.Nil), as("viewer", uuid.Nil)
	for _, page := range []string{"", "timeline", "cluster", "memory", "cache", "key?key=k", "settings", "journal", "leases", "timeline.json", "static/console.js"} {
		for _, who := range []person{viewer, another} {
			code, body := who.web(http.MethodGet, "/console/"+page, "")
			if code != http.StatusOK || strings.Contains(body, `method="post"`) || strings.Contains(body, "not whole") {
				t.Errorf("/console/%s of a viewer: got %d %s, want the page without orders", page, code, body)
			}
		}
		for _, who := range []person{client, node} {
			if code, _ := who.web(http.MethodGet, "/console/"+page, ""); code != http.StatusForbidden {
				t.Errorf("/console/%s of another role: got %d, want 403", page, code)
			}
		}
	}
	const handover = `<button disabled>Hand over to b</button>`
	if _, body := operator.web(http.MethodGet, "/console/cluster", ""); strings.Count(body, `method="post"`) != 3 || !strings.Contains(body, handover) {
		t.Errorf("the page Cluster of an operator: got %s, want a handover, a pause and its end", body)
	}
	for path, want := range map[string]int{
		"/": 200, "/get_all_segments": 200, "/get_segments_detail": 200, "/query_segment": 500, "/api/v1/tenant_quotas": 409, "/api/v1/drain_jobs/query": 400,
		"/get_all_keys": 403, "/query_key?key=k": 403, "/batch_query_keys?keys=k": 403, "/debug/pprof/heap": 403, "/console/../get_all_keys": 403, "/nothing": 403,
	} {
		if code, body := viewer.web(http.MethodGet, path, ""); code != want {
			t.Errorf("%s of a viewer: got %d %s, want %d", path, code, body, want)
		}
	}
}

// A viewer may make the calls of AdminService that change nothing, and no others of any
// service, over gRPC and JSON.
func TestViewerGivesNoOrder(t *testing.T) {
	t.Parallel()
	_, _, viewer := watched(t)
	before := viewer.node.serves()
	for _, order := range []struct{ path, form, says string }{
		{"/understudy.v1.AdminService/Handover", "term=1&target_node_id=b", `Handover is for the role operator, and \"board\" has viewer`},
		{"/understudy.v1.AdminService/PauseTakeover", "for_ms=600000", `PauseTakeover is for the role operator, and \"board\" has viewer`},
		{"/api/v1/remove_all?force=1", "", `/api/v1/remove_all is for the role operator, and "board" has viewer`},
		{"/api/v1/drain_jobs", "", `/api/v1/drain_jobs is for the role operator, and "board" has viewer`},
	} {
		if code, body := viewer.web(http.MethodPost, order.path, order.form); code != http.StatusForbidden || !strings.Contains(body, order.says) {
			t.Errorf("%s: got %d %s, want 403 and %s", order.path, code, body, order.says)
		}
	}
	conn, err := grpc.NewClient(viewer.node.RPCAddress(), grpc.WithTransportCredentials(credentials.NewTLS(viewer.tls)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, service := range []grpc.ServiceDesc{pb.AdminService_ServiceDesc, pb.ObjectService_ServiceDesc, pb.ClientService_ServiceDesc, pb.SnapshotService_ServiceDesc} {
		for _, m := range service.Methods {
			method := fmt.Sprintf("/%s/%s", service.ServiceName, m.MethodName)
			want := !readsOnly(method)
			if got := viewer.refused(conn, method); got != want {
				t.Errorf("%s over gRPC is refused: %v, want %v", method, got, want)
			}
			if service.ServiceName != pb.AdminService_ServiceDesc.ServiceName {
				continue
			}
			if code, body := viewer.web(http.MethodPost, method, ""); (code == http.StatusForbidden) != want {
				t.Errorf("%s as JSON by a viewer: got %d %s, want it refused: %v", method, code, body, want)
			}
		}
		for _, m := range service.Streams {
			method := fmt.Sprintf("/%s/%s", service.ServiceName, m.StreamName)
			if got, want := viewer.refused(conn, method), !readsOnly(method); got != want {
				t.Errorf("%s over gRPC is refused: %v, want %v", method, got, want)
			}
		}
	}
	after := viewer.node.serves()
	if after.GetHeader().GetTerm() != before.GetHeader().GetTerm() || after.GetTakeoverBlockedReason() != "" {
		t.Errorf("status after all calls of a viewer: got %v, want the term and takeovers as before: %v", after, before)
	}
	if line := `"identity":"board","role":"viewer","result":"ILLEGAL_CLIENT"`; !strings.Contains(viewer.node.log.String(), line) {
		t.Errorf("calls of a viewer were refused: got the log %s, want %s in it", viewer.node.log, line)
	}
}

// readsOnly reports whether a call is one of AdminService without side effects, by its proto, that a
// viewer may make.
func readsOnly(method string) bool {
	name, ok := strings.CutPrefix(method, "/"+pb.AdminService_ServiceDesc.ServiceName+"/")
	if !ok {
		return false
	}
	m := pb.File_understudy_v1_admin_proto.Services().ByName("AdminService").Methods().ByName(protoreflect.Name(name))
	options, _ := m.Options().(*descriptorpb.MethodOptions)
	if name == "Backup" || name == "Digest" || name == "DumpRanges" { // others need the few places
		return false
	}
	return options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}
