package app

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// rulesEvery is how often a primary looks whether all nodes know newer rules.
const rulesEvery = 5 * time.Second

// raiseRules puts the newest rules in force that every node knows. It ends when
// these are the newest that this program knows, or with the context. A node of an
// older version that comes later refuses the journal, and says so.
func (a *App) raiseRules(ctx context.Context, t *promote.Term) error {
	for a.raise(ctx, t) < metadata.NewestRules {
		if err := clock.Sleep(ctx, rulesEvery); err != nil {
			return err
		}
	}
	return nil
}

// raise puts newer rules in force if every node knows them, and returns those in force.
func (a *App) raise(ctx context.Context, t *promote.Term) metadata.Rules {
	if t.Store.Rules() == metadata.NewestRules {
		return metadata.NewestRules
	}
	known, err := a.node.knownRules(ctx)
	if err != nil || known <= t.Store.Rules() {
		return t.Store.Rules()
	}
	if err := useRules(ctx, t, known); err != nil {
		a.log.Warn().Err(err).Uint8("rules", uint8(known)).Msg("newer rules could not be put in force, it will be tried again")
	}
	return t.Store.Rules()
}

// settleTimeout bounds what comes before the first answer of a term.
const settleTimeout = time.Second

// settle sets the quotas of a policy file before the first answer of a term, if the rules
// allow it, so that no tenant is unknown at first.
func (a *App) settle(ctx context.Context, t *promote.Term, master *service.Master) {
	if !master.NeedsQuotas() {
		return // as in nearly every takeover, which must not wait
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if a.raise(ctx, t) == metadata.NewestRules {
		_ = master.SeedQuotas(ctx, a.log) // another call goes on with it after the first answer
	}
}

func useRules(ctx context.Context, t *promote.Term, version metadata.Rules) error {
	ticket, err := t.Queue.Admit(ctx, 16)
	if err != nil {
		return err
	}
	defer ticket.Release()
	_, err = ticket.Submit(ctx, &metadata.UseRules{Version: version})
	return err
}

// knownRules returns the newest rules that all registered nodes know.
func (n *clusterNode) knownRules(ctx context.Context) (metadata.Rules, error) {
	nodes, err := n.Nodes(ctx)
	if err != nil || len(nodes) == 0 {
		return metadata.FirstRules, err
	}
	known := metadata.NewestRules
	for _, node := range nodes {
		known = min(known, max(node.Rules, metadata.FirstRules))
	}
	return known, nil
}

func (n *loneNode) knownRules(context.Context) (metadata.Rules, error) {
	return metadata.NewestRules, nil
}
