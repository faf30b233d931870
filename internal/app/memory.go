package app

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// What garbage may pile up before it is collected. Go's own rule, as much as is
// alive, makes a small master collect all the time: a batch of puts spends a
// third of its processor time on that. So there may be at least this much,
// whatever is alive. It bounds what a master takes beyond Go's rule, too.
const minGarbage = 256 << 20 // bytes

// adviseCollector keeps the collector's setting fit for what is alive, unless an
// operator has set it (GOGC).
func (a *App) adviseCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return ctx.Err()
	}
	const goDefault = 100
	defer debug.SetGCPercent(goDefault)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for set := goDefault; ; {
		metrics.Read(live)
		if percent := gcPercent(live[0].Value.Uint64()); percent != set {
			set = percent
			debug.SetGCPercent(set)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// gcPercent returns how much garbage there may be, in percent of what is alive:
// Go's default, or what makes minGarbage. It moves in steps of 50, as a change
// costs a moment in which nothing runs.
func gcPercent(live uint64) int {
	const goDefault, most, step = 100, 2000, 50
	if live == 0 {
		return most
	}
	percent := math.Ceil(float64(minGarbage)/float64(live)*100/step) * step
	return int(min(most, max(goDefault, percent)))
}
