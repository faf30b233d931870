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
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// A waiting answers while a node waits for the members of etcd, which may take as long as its
// operators like: the process lives, is not ready, and says what it waits for. Over gRPC the
// answer is that of a node that does not lead, so that clients go on to one that knows more.
type waiting struct {
	reason      atomic.Pointer[string]
	http, calls net.Listener   // on the sockets of the servers that are to come; no calls on a witness
	others      []net.Listener // likewise; their connections are closed at once
}

// newWaiting returns one on the ports of listeners, which stay as they are. calls, and others,
// may be nil.
func newWaiting(http, calls net.Listener, others ...net.Listener) (*waiting, error) {
	w := new(waiting)
	w.say("this node waits for etcd")
	same := func(l net.Listener) (net.Listener, error) {
		if l == nil {
			return nil, nil
		}
		return sameSocket(l)
	}
	var err, err2 error
	w.http, err = same(http)
	w.calls, err2 = same(calls)
	err = errors.Join(err, err2)
	for _, l := range others {
		other, err2 := same(l)
		if err = errors.Join(err, err2); other != nil {
			w.others = append(w.others, other)
		}
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// sameSocket returns a listener on the socket of another one, which stays open when it is closed.
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
	return net.FileListener(f)
}

func (w *waiting) say(reason string) { w.reason.Store(&reason) }

func (w *waiting) close() {
	for _, l := range append(w.others, w.http, w.calls) {
		if l != nil {
			_ = l.Close()
		}
	}
}

// why returns the reason. Where callers are restricted it leaves it out, since it names other
// nodes; it is in the log.
func (w *waiting) why(restricted bool) string {
	if restricted {
		return "this node waits for etcd; its log says more"
	}
	return *w.reason.Load()
}

// answer answers until end is called, which must be before the servers that are to come.
func (w *waiting) answer(a *App) (end func()) {
	roles := a.callers != nil
	server := httpapi.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		answerWaiting(out, r, w.why(roles || len(a.cfg.Security.HTTPHosts) > 0))
	}), a.connections.http, a.httpTLS(), a.log)
	a.connections.bound(server, a.callers)
	calls := rpc.NewStarting(rpcerr.Source{ClusterID: a.cfg.HA.ClusterID, NodeID: a.cfg.Node.ID}, a.credentials(), func() string { return w.why(roles) })
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(w.http) })
	if w.calls != nil {
		serving.Go(func() { _ = calls.Serve(a.connections.listener(w.calls)) })
	}
	for _, l := range w.others {
		serving.Go(func() { refuse(l) })
	}
	return func() {
		for _, l := range w.others {
			_ = l.Close()
		}
		calls.Stop()
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Stop(now)
		serving.Wait()
	}
}

// refuse closes connections as they come, until the listener is closed: their clients go on to
// another node.
func refuse(l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			_ = c.Close()
		case errors.Is(err, net.ErrClosed):
			return
		default: // no descriptor is free
			_ = clock.Sleep(context.Background(), refusePause)
		}
	}
}

// refusePause is how long refuse waits after an error of the listener.
const refusePause = 100 * time.Millisecond

// answerWaiting says that the process lives, and that it is not ready.
func answerWaiting(out http.ResponseWriter, r *http.Request, reason string) {
	code := http.StatusServiceUnavailable
	if r.URL.Path == "/health" {
		code = http.StatusOK
	}
	out.Header().Set("Content-Type", "application/json")
	out.Header().Set("X-Content-Type-Options", "nosniff")
	out.WriteHeader(code)
	_ = json.NewEncoder(out).Encode(map[string]any{"status": "waiting", "service_ready": false, "reason": reason})
}
