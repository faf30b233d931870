package app

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeserver"
)

// mooncakePorts are the ports on which Mooncake's own clients are served.
type mooncakePorts struct {
	view    atomic.Int64   // of the term in which this node serves
	servers []*coro.Server // the first one at the RPC port, if that one speaks to them
	shared  *handedOver    // gRPC's connections at the RPC port; nil if only gRPC uses that port
	at      []net.Listener // of each server
}

func (a *App) newMooncakePorts() error {
	m := &a.mooncake
	settings := &mooncakeserver.Front{
		Gate: a.gate, Version: a.cfg.Mooncake.Version, View: m.view.Load, Relay: a.cfg.Mooncake.Forward, Observer: a.metrics,
		Allows: a.cfg.Allows, NoOrders: a.cfg.Mooncake.NoOrders, Roles: a.cfg.Security.Roles, Log: a.log.With().Str("part", "mooncake").Logger(), Audit: a.log.With().Str("part", "audit").Logger(),
	}
	if a.tracing != nil {
		settings.Trace = a.tracing.Call
	}
	front := mooncakeserver.New(settings)
	limits := coro.Limits{BodyBytes: uint32(a.cfg.Listen.MaxMessageBytes), Budget: coro.NewBudget(coro.BudgetBytes)} // of all ports together
	if name := a.cfg.Mooncake.Generation; name != config.NoGeneration {
		m.shared = &handedOver{addr: a.rpcListener.Addr(), conns: make(chan net.Conn), closed: make(chan struct{})}
		s, err := front.Server(name, limits, m.shared.give)
		if err != nil {
			return err
		}
		m.servers, m.at = append(m.servers, s), append(m.at, a.rpcListener)
	}
	for i, l := range a.cfg.Mooncake.Listen {
		s, err := front.Server(l.Generation, limits, nil)
		if err != nil {
			return err
		}
		m.servers, m.at = append(m.servers, s), append(m.at, a.mooncakeListeners[i])
	}
	if a.cfg.HA.Enabled { // each change waits for etcd, so an event loop would hand it on: that costs more than it saves
		for _, s := range m.servers {
			s.Loops = -1
		}
	}
	return nil
}

func (m *mooncakePorts) grpc(port net.Listener) net.Listener {
	if m.shared == nil {
		return port
	}
	return m.shared
}

// disconnect closes the connections of Mooncake's clients, which makes them look
// for the primary.
func (m *mooncakePorts) disconnect() {
	for _, s := range m.servers {
		s.Disconnect()
	}
}

func (a *App) serveMooncake(ctx context.Context) error {
	if len(a.mooncake.servers) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, s := range a.mooncake.servers {
		g.Go(func() error { return serve(ctx, func() error { return s.Serve(a.mooncake.at[i]) }, s.Stop) })
	}
	return g.Wait()
}

// mooncakeAddresses returns the addresses of the further ports.
func (a *App) mooncakeAddresses() map[string]string {
	addresses := make(map[string]string)
	for i, l := range a.mooncakeListeners {
		addresses[a.cfg.Mooncake.Listen[i].Generation] = l.Addr().String()
	}
	return addresses
}

// handedOver is a listener of connections that another listener has accepted.
type handedOver struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// give hands a connection over, or closes it if nobody accepts any more.
func (l *handedOver) give(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		_ = c.Close()
	}
}

func (l *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *handedOver) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *handedOver) Addr() net.Addr { return l.addr }
