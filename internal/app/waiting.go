package app

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/rpcerr"
)

// waitingConnections bounds the connections of each port while a node waits.
const waitingConnections = 64

// A waiting answers in place of the servers while a node waits for the members of etcd,
// which may take as long as its operators like: the process lives, is not ready, and says
// what it waits for.
type waiting struct {
	reason    atomic.Pointer[string]
	rpc, http net.Listener // on the sockets of the servers that are to come
}

// newWaiting returns one on the ports of two listeners, which stay as they are.
func newWaiting(rpc, http net.Listener) (*waiting, error) {
	w := new(waiting)
	w.say("this node starts its member of etcd")
	var err error
	if w.rpc, err = sameSocket(rpc); err != nil {
		return nil, err
	}
	if w.http, err = sameSocket(http); err != nil {
		_ = w.rpc.Close()
		return nil, err
	}
	return w, nil
}

// sameSocket returns another listener on a socket, which can be closed by itself.
func sameSocket(l net.Listener) (net.Listener, error) {
	of, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, errors.ErrUnsupported
	}
	f, err := of.File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	same, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(same, waitingConnections), nil
}

func (w *waiting) say(reason string) { w.reason.Store(&reason) }

func (w *waiting) close() {
	_ = w.rpc.Close()
	_ = w.http.Close()
}

// answer answers until it is told to end.
func (w *waiting) answer(a *App) (end func()) {
	var running sync.WaitGroup
	h := httpapi.NewServer(http.HandlerFunc(w.serveHTTP), waitingConnections, a.httpTLS(), a.log)
	options := []grpc.ServerOption{grpc.UnknownServiceHandler(w.refuse)}
	if c := a.credentials(); c != nil {
		options = append(options, grpc.Creds(c))
	}
	g := grpc.NewServer(options...)
	running.Go(func() { _ = g.Serve(w.rpc) })
	running.Go(func() { _ = h.Serve(w.http) })
	return func() {
		g.Stop()
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Stop(now)
		running.Wait()
	}
}

// refuse answers any call.
func (w *waiting) refuse(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	return rpcerr.Status(errs.New(errs.Unavailable, "", "%s", *w.reason.Load()), method, rpcerr.Source{}).Err()
}

// serveHTTP says that the process lives, and that it is not ready.
func (w *waiting) serveHTTP(out http.ResponseWriter, r *http.Request) {
	code := http.StatusServiceUnavailable
	if r.URL.Path == "/health" {
		code = http.StatusOK
	}
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(code)
	_ = json.NewEncoder(out).Encode(map[string]any{"status": "waiting", "service_ready": false, "reason": *w.reason.Load()})
}
