package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/promote"
)

// agreeEvery is how often a standby compares its settings with the primary's.
const agreeEvery = 2 * time.Second

// shared writes the settings that should be alike on all nodes.
func shared(cfg config.Config) string {
	text, err := json.Marshal(cfg.Shared())
	if err != nil {
		return "" // texts cannot fail
	}
	return string(text)
}

// disagreements returns the settings that a takeover by this node would change, and false
// if they are not known. A primary agrees with itself.
func disagreements(s promote.Status, nodes []promote.NodeInfo) (differ []string, known bool) {
	of := func(n promote.NodeInfo) (values map[string]string) {
		_ = json.Unmarshal([]byte(n.Settings), &values) // a node of an older version says nothing
		return values
	}
	if s.Self.ID == s.Leader.NodeID {
		return nil, true
	}
	primary := slices.IndexFunc(nodes, func(n promote.NodeInfo) bool { return n.ID == s.Leader.NodeID })
	if primary < 0 || of(nodes[primary]) == nil {
		return nil, false
	}
	mine, theirs := of(s.Self), of(nodes[primary])
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		if mine[name] != theirs[name] {
			differ = append(differ, fmt.Sprintf("%s is %s here, %s there", name, mine[name], cmp.Or(theirs[name], "the default")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if _, both := mine[name]; !both {
			differ = append(differ, fmt.Sprintf("%s is the default here, %s there", name, theirs[name]))
		}
	}
	return differ, true
}

// settingWarnings says which settings a takeover by this node would change.
func settingWarnings(s promote.Status, nodes []promote.NodeInfo) []string {
	differ, _ := disagreements(s, nodes)
	if differ == nil {
		return nil
	}
	return []string{fmt.Sprintf("if this node takes over from %s, settings change: %s; give all nodes the same", s.Leader.NodeID, strings.Join(differ, "; "))}
}

// agreement says which settings of this node differed from the primary's when it looked
// last.
type agreement struct {
	mu     sync.Mutex
	differ []string
	since  time.Duration // by the clock
}

// count returns how many settings differ.
func (a *agreement) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.differ)
}

// watchSettings logs when settings begin to differ from the primary's, differ in
// another way, and agree again, until the context ends.
func (n *clusterNode) watchSettings(ctx context.Context) error {
	return clock.Every(ctx, agreeEvery, func() error {
		s, nodes := n.Node.Status(), []promote.NodeInfo(nil)
		if s.Self.ID != s.Leader.NodeID {
			var err error
			if nodes, err = n.Nodes(ctx); err != nil {
				return nil // as before, until etcd answers
			}
		}
		if differ, known := disagreements(s, nodes); known {
			n.agree(differ, s.Leader.NodeID)
		}
		return nil
	})
}

// agree takes note of which settings differ from those of a primary.
func (n *clusterNode) agree(differ []string, primary string) {
	a, now := &n.agreement, n.app.clock()
	a.mu.Lock()
	before, lasted := a.differ, now-a.since
	if !slices.Equal(before, differ) {
		a.differ, a.since = differ, now
	}
	a.mu.Unlock()
	switch {
	case slices.Equal(before, differ):
	case len(differ) > 0:
		n.app.log.Warn().Str("primary", primary).Strs("settings", differ).
			Msg("settings of this node are not those of the primary: they would change if it took over; give all nodes the same")
	default:
		n.app.log.Info().Str("primary", primary).Dur("lasted", lasted).Msg("settings of this node are those of the primary again")
	}
}
