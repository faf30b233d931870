package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/promote"
)

// An operator learns that a member of etcd was killed, though etcd goes on without it and no
// node used it.
func TestKilledEndpointOfEtcd(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, etcdtest.WithNodes(3))
	a := run(t, settings(config.Primary, "a", cluster.Endpoints()))
	a.serves()
	cluster.Stop(2)
	a.says("an endpoint of etcd does not answer")
	a.warned("etcd does not answer at " + cluster.Endpoint(2))
	cluster.Start(2)
	a.says("an endpoint of etcd answers again")
	a.until("warns no more", func(s *pb.StatusResponse) bool {
		return !strings.Contains(strings.Join(s.GetWarnings(), "\n"), "does not answer at")
	})
	for _, line := range []string{`"level":"warn","node":"a","endpoint":"` + cluster.Endpoint(2), `"level":"info","node":"a","endpoint":"` + cluster.Endpoint(2)} {
		if n := strings.Count(a.log.String(), line); n != 1 {
			t.Errorf("the log has %d lines with %s, want one:\n%s", n, line, a.log)
		}
	}
}

func TestAbsences(t *testing.T) {
	said := ""
	a := absences{
		gone: func(name string, cause error) { said += fmt.Sprintf("%s is gone: %v\n", name, cause) },
		back: func(name string, lasted time.Duration) { said += fmt.Sprintf("%s is back after %v\n", name, lasted) },
	}
	miss, now := errors.New("no route"), time.Duration(0)
	look := func(x, y error, away ...string) {
		t.Helper()
		now += time.Second
		a.look(map[string]error{"x": x, "y": y}, now)
		if got := a.away(); !slices.Equal(got, away) {
			t.Errorf("after %v: %v are away, want %v", now, got, away)
		}
	}
	says := func(want string) {
		t.Helper()
		if said != want {
			t.Errorf("got\n%s\nwant\n%s", said, want)
		}
		said = ""
	}
	look(nil, miss)
	look(nil, nil) // a busy machine
	says("")
	look(miss, nil)
	look(miss, nil, "x")
	look(miss, nil, "x")
	says("x is gone: no route\n")
	look(nil, nil)
	says("x is back after 3s\n")
	look(miss, miss)
	look(miss, nil, "x")
	a.look(nil, now) // somebody else looks from now on
	if len(a.away()) > 0 {
		t.Errorf("another node looks at the members: got %v away, want none: absences count only while this one looks", a.away())
	}
	says("x is gone: no route\n")
}

func TestQuotaWarnings(t *testing.T) {
	for _, tt := range []struct {
		size, quota uint64
		want        bool
	}{{100 << 20, 0, false}, {79 << 20, 100 << 20, false}, {80 << 20, 100 << 20, true}} {
		got := strings.Join(quotaWarnings(tt.size, tt.quota), "")
		if (got != "") != tt.want || tt.want && !strings.Contains(got, "has 80 of the 100 MiB") {
			t.Errorf("%d of %d: got %q, want a warning: %t", tt.size, tt.quota, got, tt.want)
		}
	}
}

// While a node waits for etcd it reads new certificates: those that it has may be why it waits.
func TestNewCertificatesBeforeEtcdAnswers(t *testing.T) {
	t.Parallel()
	c := secure(settings(config.Primary, "a", []string{"http://" + etcdtest.UnusedAddress()}), nodeFiles(t, newAuthority(t)))
	c.Node.StateDir = t.TempDir()
	if err := os.WriteFile(filepath.Join(c.Node.StateDir, "state"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := run(t, c)
	a.says("this node waits for etcd")
	fresh := nodeFiles(t, newAuthority(t))
	replace(t, fresh.Key, c.Security.Key)
	replace(t, fresh.Cert, c.Security.Cert)
	replace(t, fresh.CA, c.Security.CA)
	a.says("new certificates are in use")
}

// A node with a member of etcd goes on waiting when that is ready and loses its majority again;
// it ends if its server has died.
func TestWaitForEtcdThatWasReady(t *testing.T) {
	away := status.Error(codes.Unavailable, "etcdserver: no leader")
	for name, tt := range map[string]struct {
		answers []error
		dies    bool
		want    string
	}{
		"answers late":       {[]error{away, nil}, false, ""},
		"refuses this node":  {[]error{away, errors.New("wrong user")}, false, "wrong user"},
		"dies in the middle": {[]error{away}, true, "the server died"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &App{log: zerolog.Nop(), waiting: new(waiting)}
			a.cfg.HA = config.HA{Enabled: true, ClusterInit: true}
			e := &etcdConn{server: new(etcdserver.Server)}
			e.broken, e.fail = context.WithCancelCause(t.Context())
			asked := 0
			err := e.answer(t.Context(), a, func(context.Context, *App) error {
				if tt.dies {
					e.fail(errors.New("the server died"))
				}
				asked++
				return tt.answers[asked-1]
			})
			if fmt.Sprint(err) != cmp.Or(tt.want, "<nil>") || asked != len(tt.answers) {
				t.Errorf("asked %d times, it ended with %v; want %d times, and %q", asked, err, len(tt.answers), tt.want)
			}
		})
	}
}

// A node that holds a state waits for an etcd that is away when it starts, answers over HTTP
// and gRPC that it does, and serves when etcd is back.
func TestStartWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t)
	c := settings(config.Primary, "a", cluster.Endpoints())
	c.Node.DataDir = t.TempDir()
	a := run(t, c)
	a.serves()
	a.end()
	cluster.StopAll()
	b := run(t, c)
	b.says("this node waits for etcd")
	address := "http://" + b.httpListener.Addr().String()
	for path, want := range map[string]int{"/health": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		resp, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || !strings.Contains(string(body), "this node waits for etcd") {
			t.Errorf("%s: got %d and %s; want %d and that the node waits for etcd", path, resp.StatusCode, body, want)
		}
	}
	_, err := b.admin.Status(t.Context(), &pb.StatusRequest{})
	said, from := rpcerr.Parse(err)
	if said == nil || said.Kind != errs.NotLeader || from.NodeID != "a" || !strings.Contains(said.Error(), "this node waits for etcd") {
		t.Errorf("gRPC: got %v from %v, want that a waits for etcd", err, from)
	}
	_, err = (&peers{clusterID: c.HA.ClusterID, nodeID: "x"}).Standing(t.Context(), b.RPCAddress())
	var starting *promote.StartingError
	if !errors.As(err, &starting) || starting.NodeID != "a" || !strings.Contains(starting.Why, "waits for etcd") {
		t.Errorf("asked by another node: got %v, want that a starts", err)
	}
	cluster.StartAll()
	b.serves()
}

// A node that has never used its etcd says at once that it waits for it, and ends soon: the
// address may be wrong.
func TestFirstStartWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	b := run(t, settings(config.Standby, "a", []string{"http://" + etcdtest.UnusedAddress()}))
	_, err := b.admin.Status(t.Context(), &pb.StatusRequest{})
	if said, _ := rpcerr.Parse(err); said == nil || said.Kind != errs.NotLeader || !strings.Contains(said.Error(), "this node waits for etcd") {
		t.Errorf("got %v, want that the node waits for etcd", err)
	}
}
