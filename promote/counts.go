package promote

import "time"

// Counts are what a node counted of calls since its process started. A primary registers them,
// so that the others have its curves when it is gone. No decision depends on them.
type Counts struct {
	// Since tells the counts of one process from those of the next: when it started, by its wall
	// clock, in milliseconds since 1970. It is 0 for a node that registers none: one that is not
	// elected, or of an older version.
	Since int64 `json:"since"`
	Gets  int64 `json:"gets"` // keys that were asked for, or found missing
	Hits  int64 `json:"hits"` // keys that were found
	Puts  int64 `json:"puts"` // that began
	// PutP99 is the 99th percentile of the puts of the last second with any, in milliseconds;
	// 0 before the first.
	PutP99 float64 `json:"put_p99_ms,omitempty"`
}

// PrimaryCounts are the counts of the elected node, as this node last read them in etcd.
type PrimaryCounts struct {
	NodeID string // empty before the first
	Counts
	Read time.Duration // when, by the node's clock
}

// readCounts notes the counts of the elected node, if it registered any.
func (n *Node) readCounts(elected Leader, nodes []NodeInfo, at time.Duration) {
	for _, other := range nodes {
		if other.ID == elected.NodeID && other.Counts.Since != 0 {
			n.mu.Lock()
			n.counts = PrimaryCounts{NodeID: other.ID, Counts: other.Counts, Read: at}
			n.mu.Unlock()
		}
	}
}
