package promote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote/statefile"
)

// look notes the state files that other nodes have beside this node's directory, which holds
// no state: this node may have had another id when it wrote them.
func (s *saver) look() {
	n := s.node
	if !n.StateBeside {
		return
	}
	list, err := statefile.Neighbours(n.StateDir, n.ID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.Log.Warn().Err(err).Str("dir", n.StateDir).Msg("the directories beside the state directory cannot be listed; state files of a former node id would not be found")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.neighbours = list
}

// strays returns the directories beside this node's in which a state may stand that the
// journal goes on from. The node of such a directory is not registered: one that is says
// itself what it holds. While there is no journal, a state before the first commit is none.
func (n *Node) strays(head journal.Cursor, registered []NodeInfo) (list []statefile.Neighbour) {
	n.saver.mu.Lock()
	defer n.saver.mu.Unlock()
	for _, other := range n.saver.neighbours {
		if !isAmong(registered, other.Name) && !(other.Empty && head.Head.Seq == 0) {
			list = append(list, other)
		}
	}
	return list
}

// claim is what an operator can do so that this node loads one of these directories.
func claim(strays []statefile.Neighbour) string {
	if len(strays) > 1 {
		return "if this node had one of these ids, start it again with --node-id set to that one"
	}
	return fmt.Sprintf("if this node was %s, start it again with --node-id=%s, or with --state-dir=%s", strays[0].Name, strays[0].Name, strays[0].Path)
}

// besideOthers returns the obstacle of a node that only the state files of other nodes,
// beside its own directory, keep from starting empty. It returns nil if there are none, or an
// operator has ordered an empty start.
func (n *Node) besideOthers(ctx context.Context, head journal.Cursor, registered []NodeInfo) error {
	strays := n.strays(head, registered)
	if n.emptyOrdered() || !n.MayStartEmpty || len(strays) == 0 {
		return nil
	}
	absent, err := n.absent(ctx, registered)
	if err != nil {
		return err
	}
	var places []string
	for _, s := range strays {
		places = append(places, fmt.Sprintf("%s (%s)", s.Name, s.Path))
	}
	order := "masterctl start-empty --yes --node=" + n.ID
	if ids := absent.listed(); len(ids) > 0 {
		order = fmt.Sprintf("masterctl forget --yes %s, and then %s", strings.Join(ids, " "), order)
	}
	return &Obstacle{
		Cause:  HoldsFile,
		Reason: fmt.Sprintf("this node, %s, holds no state, and beside its directory stand state files of %s; it does not start empty as long as they may be its own", n.ID, strings.Join(places, ", ")),
		Help:   claim(strays) + "; or move what is not needed away and start this node again; or give up what these files hold: " + order,
	}
}
