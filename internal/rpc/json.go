package rpc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpcmd "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
)

// maxJSON is how many bytes a request in JSON may have: a key, with every byte escaped.
const maxJSON = 512 << 10

// JSON returns a handler for the calls of AdminService over HTTP, but for those that send or
// take files. Calls without side effects take GET, with the fields of the request in the
// query. All take POST, with the request in the body, or its fields as a form sends them.
// Answers, and errors as a google.rpc.Status, are in JSON as protobuf defines it; a stream has
// one message a line (see lineStream). Roles, limits and the audit are those of gRPC.
func (s *Server) JSON() http.Handler {
	mux := http.NewServeMux()
	service := "/" + pb.AdminService_ServiceDesc.ServiceName + "/"
	methods := pb.File_understudy_v1_admin_proto.Services().ByName("AdminService").Methods()
	handle := func(name string, h http.HandlerFunc) {
		mux.HandleFunc("POST "+service+name, h)
		if harmless(methods.ByName(protoreflect.Name(name))) {
			mux.HandleFunc("GET "+service+name, h)
		}
	}
	for _, call := range pb.AdminService_ServiceDesc.Methods {
		handle(call.MethodName, s.overHTTP(call))
	}
	for _, call := range pb.AdminService_ServiceDesc.Streams {
		if call.ServerStreams && !call.ClientStreams && service+call.StreamName != pb.AdminService_Backup_FullMethodName {
			handle(call.StreamName, s.streamOverHTTP(service, call))
		}
	}
	return mux
}

func harmless(m protoreflect.MethodDescriptor) bool {
	options, ok := m.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

func (s *Server) overHTTP(call grpc.MethodDesc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		resp, err := call.Handler(s.admin, contextOf(r), func(to any) error { return s.readJSON(w, r, to.(protobuf.Message)) }, s.around)
		if large, ok := resp.(*answer); ok {
			defer large.giveBack()
			resp = large.Message
		}
		if err != nil {
			writeStatus(w, s.statusOf(call.MethodName, 0, err))
			return
		}
		writeJSON(w, http.StatusOK, resp.(protobuf.Message))
	}
}

// writeStatus answers with an error, as a google.rpc.Status.
func writeStatus(w http.ResponseWriter, err error) {
	st, _ := status.FromError(err)
	writeJSON(w, runtime.HTTPStatusFromCode(st.Code()), st.Proto())
}

func writeJSON(w http.ResponseWriter, code int, m protobuf.Message) {
	b, err := lineOf(m)
	if err != nil { // text that is not UTF-8
		http.Error(w, "the answer cannot be written as JSON; ask over gRPC", http.StatusInternalServerError)
		return
	}
	begin(w, code, "application/json")
	_, _ = w.Write(b)
}

func begin(w http.ResponseWriter, code int, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
}

func lineOf(m protobuf.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	return append(b, '\n'), err
}

// contextOf returns the context of a request as gRPC would have it.
func contextOf(r *http.Request) context.Context {
	ctx := peer.NewContext(r.Context(), peerOf(r))
	return grpcmd.NewIncomingContext(ctx, grpcmd.Pairs("authorization", r.Header.Get("Authorization"), joinToken, r.Header.Get(joinToken)))
}

// around runs a handler within all interceptors of a gRPC call.
func (s *Server) around(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	for _, outer := range slices.Backward(s.unary) {
		inner := handler
		handler = func(ctx context.Context, req any) (any, error) { return outer(ctx, req, info, inner) }
	}
	return handler(ctx, req)
}

// readJSON reads a request. Meanwhile its bytes count as those of a request over gRPC.
func (s *Server) readJSON(w http.ResponseWriter, r *http.Request, to protobuf.Message) error {
	if r.Method != http.MethodPost {
		return readFields(r.URL.RawQuery, to)
	}
	host := share.Host(peerOf(r).Addr)
	if taken, all, own := s.arriving.Take(host, maxJSON); !taken {
		return errs.New(errs.Unavailable, "", "%d bytes of requests of yours are not finished, of all %d; finish these first", own, all)
	}
	defer s.arriving.GiveBack(host, maxJSON)
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return errs.New(errs.InvalidParams, "", "the request has more than %d bytes", large.Limit)
	}
	if form, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && form == "application/x-www-form-urlencoded" && !bytes.HasPrefix(b, []byte("{")) {
		return readFields(string(b), to)
	}
	if err == nil && len(b) > 0 {
		err = protojson.Unmarshal(b, to)
	}
	if err != nil {
		return errs.New(errs.InvalidParams, "", "the body must be the request in JSON: %v", err)
	}
	return nil
}

func readFields(text string, to protobuf.Message) error {
	fields, err := url.ParseQuery(text)
	for name := range fields { // runtime would leave unknown ones out
		if err == nil && !hasField(to.ProtoReflect().Descriptor(), name) {
			err = fmt.Errorf("there is no field %q", name)
		}
	}
	if err == nil {
		err = runtime.PopulateQueryParameters(to, fields, utilities.NewDoubleArray(nil))
	}
	if err != nil {
		return errs.New(errs.InvalidParams, "", "there must be the fields of the request: %v", err)
	}
	return nil
}

// hasField reports whether a message has a field of a name, as of a query: a.b is field b of
// message a.
func hasField(of protoreflect.MessageDescriptor, name string) bool {
	first, rest, nested := strings.Cut(name, ".")
	first, _, _ = strings.Cut(first, "[") // of a map
	f := cmp.Or(of.Fields().ByName(protoreflect.Name(first)), of.Fields().ByJSONName(first))
	return f != nil && (!nested || f.Message() != nil && hasField(f.Message(), rest))
}

// peerOf returns who sent a request, as gRPC does.
func peerOf(r *http.Request) *peer.Peer {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // net/http has it from the connection
	p := &peer.Peer{Addr: net.TCPAddrFromAddrPort(from)}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	return p
}
