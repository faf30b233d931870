package drill

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/understudy-store/understudy/journal"
)

// gaveUp begins what a node logs when it gives its state up.
const gaveUp = "this node lost the journal"

// confessed counts a violation of S for each time that a node has given its
// state up because it was not the primary's, or did not fit the journal. This
// takes a node at its own word, but only against itself: a snapshot mends the
// state, so that the judge may find nothing at the end.
func (e *Env) confessed() error {
	for _, n := range e.cluster.nodes {
		if n.Node == nil {
			continue
		}
		reasons, err := lossReasons(n.Log)
		if err != nil {
			return err
		}
		for _, reason := range reasons {
			switch reason {
			case journal.ReasonDigest, journal.ReasonDifference, journal.ReasonCorrupt, journal.ReasonGap:
				e.result.violate("S", 1, fmt.Sprintf("%s gave its state up: %s", n.name, reason))
			default: // it was behind, or has just begun
			}
		}
	}
	return nil
}

// lossReasons reads from a node's log why it gave its state up, over all its
// lives.
func lossReasons(path string) (list []journal.Reason, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Message string         `json:"message"`
			Reason  journal.Reason `json:"reason"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && strings.HasPrefix(line.Message, gaveUp) {
			list = append(list, line.Reason)
		}
	}
	return list, lines.Err()
}
