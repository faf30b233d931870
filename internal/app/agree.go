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

// maxChanges and maxValue bound what a status says of each node's settings: so many
// settings, and so many bytes of a value.
const maxChanges, maxValue = 8, 64

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
	if s.Self.ID == s.Leader.NodeID {
		return nil, true
	}
	list, known := differences(s.Self, primaryOf(s, nodes))
	for _, d := range list {
		differ = append(differ, fmt.Sprintf("%s is %s here, %s there", d.name, d.own, d.primary))
	}
	return differ, known
}

// primaryOf returns the primary as it has registered itself; without an id if none is known.
func primaryOf(s promote.Status, nodes []promote.NodeInfo) promote.NodeInfo {
	if s.Self.ID == s.Leader.NodeID {
		return s.Self
	}
	if i := slices.IndexFunc(nodes, func(n promote.NodeInfo) bool { return n.ID == s.Leader.NodeID }); i >= 0 {
		return nodes[i]
	}
	return promote.NodeInfo{}
}

// A difference is a setting that a node has otherwise than the primary.
type difference struct{ name, own, primary string }

// differences compares the settings of two nodes that should be alike, in the order of their
// names. They are not known of a node of an older version.
func differences(n, primary promote.NodeInfo) (list []difference, known bool) {
	var own, theirs map[string]string
	_ = json.Unmarshal([]byte(n.Settings), &own)
	_ = json.Unmarshal([]byte(primary.Settings), &theirs)
	if own == nil || theirs == nil {
		return nil, false
	}
	names := slices.Sorted(maps.Keys(own))
	names = slices.AppendSeq(names, maps.Keys(theirs))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if d := (difference{name, valueOf(own, name), valueOf(theirs, name)}); d.own != d.primary {
			list = append(list, d)
		}
	}
	return list, true
}

// valueOf returns a value for people. A node registers only what is not the default, so a
// default is that of this version.
func valueOf(values map[string]string, name string) string {
	if value, given := values[name]; given {
		return cmp.Or(value, "empty")
	}
	return defaultOf(name)
}

// defaultOf returns the default of a setting for people.
func defaultOf(name string) string {
	value, known := config.DefaultOf(name)
	if !known { // a setting of another version
		return "the default"
	}
	return cmp.Or(value, "empty") + " (the default)"
}

// takeoverChanges says what would change if a node became the primary: at most maxChanges
// settings and a line for the rest, each value at most maxValue bytes.
func takeoverChanges(n promote.NodeInfo, s promote.Status, nodes []promote.NodeInfo) (changes []string) {
	primary := primaryOf(s, nodes)
	if primary.ID == "" || primary.ID == n.ID {
		return nil
	}
	list, known := differences(n, primary)
	if !known {
		return []string{"whether settings would change is not known"}
	}
	for i, d := range list {
		if i == maxChanges {
			return append(changes, fmt.Sprintf("%d more settings would change", len(list)-i))
		}
		changes = append(changes, fmt.Sprintf("%s would change from %s to %s", d.name, shortened(d.primary), shortened(d.own)))
	}
	return changes
}

func shortened(value string) string {
	if len(value) <= maxValue {
		return value
	}
	return strings.ToValidUTF8(value[:maxValue], "") + "…"
}

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
