package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/internal/etcd/members"
	"github.com/understudy-store/understudy/internal/zslog"
	"github.com/understudy-store/understudy/journal"
)

// etcdWait is how long a node without a state waits for its etcd at the start, before it
// concludes that the address is wrong. A node with a state has used this etcd before: it logs
// each attempt, and waits on.
const etcdWait = 10 * time.Second

// etcdPause lies between two attempts: one that asks for a user's token may fail at once.
const etcdPause = time.Second

// An etcdConn is a node's connection to etcd, nil without HA.
type etcdConn struct {
	server   *etcdserver.Server // embedded, or nil
	members  []string           // all endpoints; a client returns only the one in use
	journal  *clientv3.Client
	sessions *clientv3.Client // for sessions and registrations, so that the journal's calls delay no keepalive
	broken   context.Context  // ends when the embedded server dies
	fail     context.CancelCauseFunc
	busy     bool // the embedded server must not be closed: it would crash. It ends with the process
}

// openEtcd starts the embedded etcd, or connects to the one given, and checks
// that it answers.
func (a *App) openEtcd(ctx context.Context) (*etcdConn, error) {
	if !a.cfg.HA.Enabled {
		return nil, nil
	}
	if a.waiting != nil {
		defer a.waiting.answer(a)()
	}
	e := &etcdConn{}
	e.broken, e.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	e.members = a.cfg.HA.EtcdEndpoints
	if a.cfg.HA.Embedded() {
		if err := e.start(ctx, a); err != nil {
			return nil, err
		}
		e.members = e.server.Endpoints()
	}
	if err := e.answer(ctx, a, e.connect); err != nil {
		e.close()
		return nil, err
	}
	if a.cfg.HA.Members() {
		of := members.Cluster{Client: e.journal, Replaced: journal.NewLayout(a.cfg.HA.EtcdPrefix, a.cfg.HA.ClusterID).Replaced()}
		if err := of.Returned(ctx, a.cfg.Node.ID); err != nil && errs.KindOf(err) != errs.InvalidParams { // unless etcd does not know the name yet
			a.log.Warn().Err(err).Msg("an order that this node's member of etcd may be replaced may still stand")
		}
	}
	return e, nil
}

// answer returns when etcd has answered. It tries again and again if this node waits for etcd,
// and the embedded server has not died: that one may be ready, and lose its majority again.
func (e *etcdConn) answer(ctx context.Context, a *App, connect func(context.Context, *App) error) error {
	begun, awaits := clock.Boot()(), a.cfg.HA.Members() || a.awaitsEtcd()
	for {
		err := connect(ctx, a)
		if !awaits || !etcdclient.Silent(err) || ctx.Err() != nil {
			return err
		}
		if died := context.Cause(e.broken); died != nil {
			return died
		}
		a.waiting.say("this node waits for etcd: " + err.Error())
		a.log.Warn().Err(err).Dur("waited", clock.Boot()()-begun).Msg("this node waits for etcd")
		e.disconnect()
		_ = clock.Sleep(ctx, etcdPause)
	}
}

// awaitsEtcd reports whether this node waits without end for an etcd that is away at its
// start: all machines may have lost power, and etcd's may take longer to start. (If the node
// ended, its supervisor would start it again ever more seldom.) A node without a state may
// never have used this etcd: it ends and says that the address may be wrong.
func (a *App) awaitsEtcd() bool {
	if !a.cfg.HA.Enabled || a.cfg.HA.Embedded() {
		return false
	}
	files, err := os.ReadDir(a.cfg.Node.StateDir)
	return err == nil && len(files) > 0
}

// connect connects to etcd, and waits for its answer, for etcdWait at most.
func (e *etcdConn) connect(ctx context.Context, a *App) error {
	log := zslog.New(a.log)
	access, err := a.etcdAccess()
	if err == nil {
		e.journal, err = etcdclient.Connect(ctx, e.members, access, log.With("calls", "journal"))
	}
	if err == nil && e.server != nil {
		e.server.Direct(e.journal)
	}
	if err == nil {
		e.sessions, err = etcdclient.Connect(ctx, e.members, access, log.With("calls", "sessions"))
	}
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	return etcdclient.Check(wait, e.journal, e.members)
}

func (e *etcdConn) disconnect() {
	for _, c := range []*clientv3.Client{e.journal, e.sessions} {
		if c != nil {
			_ = c.Close()
		}
	}
	e.journal, e.sessions = nil, nil
}

func (e *etcdConn) start(ctx context.Context, a *App) error {
	secrecy, err := a.etcdServerTLS()
	if err != nil {
		return err
	}
	settings := etcdserver.Settings{
		DataDir:        filepath.Join(a.cfg.Node.DataDir, "etcd"),
		ClientAddr:     a.cfg.HA.EtcdListen,
		QuotaBytes:     a.cfg.HA.EtcdQuotaBytes,
		TLS:            secrecy,
		Counted:        a.etcdClientConns.listener,
		CountedMembers: a.etcdMemberConns.listener,
		Logger:         a.log.With().Str("part", "etcd").Logger(),
	}
	start, flags := etcdserver.Start, "--data-dir, --etcd-listen"
	if a.cfg.HA.Members() {
		if settings.Member, err = a.place(ctx, settings.DataDir, secrecy); err != nil {
			return err
		}
		start, flags = a.startMember, "--data-dir, --etcd-listen, --etcd-peer-listen"
	} else if !etcdserver.HasData(settings.DataDir) {
		if err := a.mayFound(); err != nil {
			return err
		}
	}
	server, err := start(ctx, settings)
	if err != nil {
		return fmt.Errorf("starting the embedded etcd (%s): %w", flags, err)
	}
	e.server = server
	go func() {
		if err, ok := <-server.Err(); ok && err != nil {
			e.fail(fmt.Errorf("the embedded etcd died: %w", err))
		}
	}()
	return nil
}

func (e *etcdConn) close() {
	if e == nil {
		return
	}
	e.disconnect()
	if e.server != nil && !e.busy {
		_ = e.server.Close()
	}
	e.fail(nil)
}

// failed ends when the embedded etcd has died.
func (e *etcdConn) failed() context.Context {
	if e == nil {
		return context.Background()
	}
	return e.broken
}

func (e *etcdConn) endpoints() []string {
	if e == nil {
		return nil
	}
	return e.members
}
