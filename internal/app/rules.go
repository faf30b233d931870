package app

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// rulesEvery is how often a primary looks whether all nodes know newer rules.
const rulesEvery = 5 * time.Second

// raiseRules puts the newest rules in force that every node knows. It ends when
// there are none that are newer, or with the context. A node of an older version
// that comes later refuses the journal, and says so.
func (a *App) raiseRules(ctx context.Context, t *promote.Term) error {
	for t.Store.Rules() < metadata.NewestRules {
		if known, err := a.node.knownRules(ctx); err == nil && known > t.Store.Rules() {
			if err = useRules(ctx, t, known); err == nil {
				continue
			}
			a.log.Warn().Err(err).Uint8("rules", uint8(known)).Msg("newer rules could not be put in force, it will be tried again")
		}
		if err := clock.Sleep(ctx, rulesEvery); err != nil {
			return err
		}
	}
	return nil
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
