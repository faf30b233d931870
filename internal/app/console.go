package app

import (
	"net/http"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/console"
)

// newRecorder returns what keeps the node's figures for the console.
func (a *App) newRecorder() *console.Recorder {
	return &console.Recorder{Read: a.reading, Now: clock.Wall}
}

// reading returns how this node stands now. It asks nobody.
func (a *App) reading() console.Reading {
	s, calls, puts := a.node.promoteStatus(), a.counters.service, a.metrics.Puts()
	read := console.Reading{
		Role: string(s.Self.Role), Term: uint64(max(s.Leader.Term, s.Position.Term)), Primary: s.Leader.NodeID, Serving: a.gate.Serves(),
		Gets: calls.Gets.Load() + calls.ExistMisses.Load(), Hits: calls.ValidGets.Load(), Saves: s.Saving.Saves,
		Puts: console.Latency{Count: puts.Count, Bounds: puts.Bounds, Counts: puts.Counts}, LoadReason: string(s.LastLoad),
	}
	for _, n := range s.Loads {
		read.Loads += n
	}
	if s.Obstacle != nil {
		read.Obstacle = s.Obstacle.Reason
	}
	return read
}

// console returns what answers below /console/.
func (a *App) console() http.Handler {
	return console.Handler(console.Sources{
		Node: a.node, Brief: a.httpNode, Cluster: a.cfg.HA.ClusterID, Version: a.version, Now: clock.Wall,
		Gate: a.gate, Scans: a.scans, Calls: a.counters.service, Recorder: a.recorder, Log: a.log,
	})
}
