package app

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// Serve opens this node for calls during a term and runs the primary's loops,
// until the context ends or one of them fails. When it returns, none of them
// runs and no call is taken.
func (a *App) Serve(ctx context.Context, t *promote.Term) error {
	evictor := a.evictor(t)
	leases := leasesync.New(leasesync.Leases{
		Store: t.Store, Journal: t.Queue, Interval: a.cfg.Lease.SyncInterval,
		CriticalWindow:  a.cfg.Lease.CriticalWindow,
		CriticalExpired: a.expiry() || a.cfg.HA.PromotionCleanup == promote.CleanupExpired,
		CriticalDelay:   a.cfg.Lease.CriticalDelay,
		Counters:        a.counters.leases, Log: a.log,
	})
	shares := a.shares()
	liveness := service.NewLiveness(a.cfg.Client.TTL, a.cfg.Client.RPCTimeout, a.clock, t.Store)
	liveness.Share(shares.Clients)
	if t.MayLack {
		liveness.AskAll()
	}
	master := service.NewMaster(service.Master{
		Settings: service.Settings{
			ClusterID:  a.cfg.HA.ClusterID,
			RootFSDir:  a.cfg.Storage.RootFSDir,
			LocalFirst: a.cfg.Storage.AllocationStrategy == config.AllocateLocalFirst,

			DiskEviction: a.cfg.Storage.DiskEviction, DiskQuota: uint64(a.cfg.Storage.QuotaBytes),

			SoftPinTTL: a.cfg.Lease.SoftPinTTL,
			MaxSoftPin: a.cfg.Lease.MaxSoftPinTTL,
			Version:    a.version,
			Offload:    a.cfg.Storage.Offload, OffloadQueue: a.cfg.Storage.OffloadQueue, OffloadOnEvict: a.cfg.Storage.OffloadOnEvict,

			Scans: a.scans, Tenants: service.Tenants(a.cfg.Tenants.Enabled), TenantWatermark: a.cfg.Tenants.HighWatermark, TenantRatio: a.cfg.Eviction.Ratio,
			EvictSoftPinned: a.cfg.Eviction.AllowSoftPinned, InitialQuotas: a.quotas,
			Promotion: a.promotion(), Replication: a.replication(), Shares: shares,
		},
		Term: t.Number, Store: t.Store, Leases: leases, Queue: t.Queue, Now: t.Now, Fence: t.Fence, Answers: t.Answers, Liveness: liveness,
		Counters: a.counters.service, Hot: a.hot, AllocationFailed: evictor.AllocationFailed, Expired: a.forgetMetadata(), RemovedMany: a.logRemoval, Displaced: a.logDisplaced(),
	})
	if a.cfg.Storage.Offload && a.cfg.Storage.OffloadOnEvict {
		evictor.Spare = master.SpareForOffload
	}
	a.settle(ctx, t, master)
	a.mooncake.view.Store(t.View)
	a.gate.Open(master)
	defer func() {
		a.gate.Close(a.hint(a.node.promoteStatus().Leader))
		a.mooncake.disconnect()
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return leases.Run(ctx) })
	g.Go(func() error { return evictor.Run(ctx) })
	g.Go(func() error { return master.WatchClients(ctx, a.log) })
	g.Go(func() error { return master.DriveTasks(ctx, a.log) })
	g.Go(func() error { return master.RefillOffloads(ctx) })
	g.Go(func() error { return master.SeedQuotas(ctx, a.log) })
	g.Go(func() error { return master.EvictTenants(ctx, a.log) })
	g.Go(func() error { return a.raiseRules(ctx, t) })
	g.Go(func() error { return a.kv.publisher.Publish(ctx, t.Number) })
	return g.Wait()
}

func (a *App) logRemoval(r service.RemoveRequest, what, pattern string, result deleteevents.Result, err error) {
	const longest = 256
	line := a.log.Info().Err(err).Str("call", what).Str("from", r.From).Str("tenant", r.Tenant).Bool("force", r.Force).
		Int("objects", result.Removed).Int("kept_leased", result.Leased).Int("kept_in_progress", result.InProgress)
	if pattern != "" {
		line.Str("pattern", pattern[:min(len(pattern), longest)])
	}
	line.Msg("removed many objects")
}

// maxDisplaced is how many lines of mounts that took memory from others are logged in a minute.
const maxDisplaced = 100

// logDisplaced returns what says whose memory a mount has taken. It leaves lines out, as
// clients may mount as often as they like.
func (a *App) logDisplaced() func(by service.Caller, client segment.ClientID, from metadata.Lender) {
	few := access.NewFewLines(a.log.With().Str("part", "audit").Logger(), maxDisplaced)
	return func(by service.Caller, client segment.ClientID, from metadata.Lender) {
		line := few.InfoOf(by.Peer)
		if line == nil { // it is left out
			return
		}
		who := "peer"
		if by.Identified {
			who = "identity"
		}
		line.Str(who, by.Peer).Stringer("client", client).Stringer("owner", from.Client).Str("owner_peer", from.Peer).Msg("a mount took memory of others")
	}
}

func (a *App) replication() service.Replication {
	r := a.cfg.Storage.Replication
	return service.Replication{
		Observe: r.Mode == config.ReplicationObserve, Enforce: r.Mode == config.ReplicationEnforce, Window: r.Window, Rate: r.Rate, Replicas: r.Replicas,
	}
}

func (a *App) promotion() service.Promotion {
	p := a.cfg.Storage.Promotion
	return service.Promotion{
		On: p.On, Threshold: min(max(p.Threshold, 1), 255), Limit: p.Limit, PerHeartbeat: max(p.PerHeartbeat, 1),
		Watermark: a.cfg.Eviction.HighWatermark,
	}
}

func (a *App) evictor(t *promote.Term) *eviction.Loop {
	var policy eviction.Policy = eviction.Watermark{
		High: a.cfg.Eviction.HighWatermark, Ratio: a.cfg.Eviction.Ratio, SoftPins: a.cfg.Eviction.AllowSoftPinned,
	}
	if a.expiry() {
		policy = eviction.Expiry{}
	}
	return eviction.NewLoop(&eviction.Loop{
		Store: t.Store, Journal: t.Queue, Policy: policy, Every: a.cfg.Eviction.Interval, Now: t.Now,
		Counters: a.counters.eviction, Log: a.log,
	})
}

// hint names the serving node, unless it is this one or there is none.
func (a *App) hint(l promote.Leader) service.Hint {
	h := service.Hint{Term: uint64(l.Term)}
	if l.NodeID != a.cfg.Node.ID {
		h.NodeID, h.RPC = l.NodeID, l.RPC
	}
	return h
}
