package app

import (
	"cmp"
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// minHeap is how large Go's heap may become before a collection, however little of it is
// alive. Under Go's own rule, twice what is alive, a small master collects all the time: a
// batch of puts spends a third of its processor time on that.
const minHeap = 256 << 20 // bytes

// goPercent is Go's own rule: as much garbage as there is alive.
const goPercent = 100

// adviseEvery is how often the setting is adapted. Until then a live heap that grows may have
// as much garbage as the setting for the smaller one allows.
const adviseEvery = 100 * time.Millisecond

// adviseCollector adapts the garbage collector's setting to the live heap, unless
// an operator has set it (GOGC). A change stops the program for a moment, so it makes none
// of less than a sixteenth.
func (a *App) adviseCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return ctx.Err()
	}
	defer debug.SetGCPercent(goPercent)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for set := goPercent; ; {
		metrics.Read(live)
		if percent := gcPercent(live[0].Value.Uint64()); 16*max(percent-set, set-percent) > set {
			set = percent
			debug.SetGCPercent(set)
		}
		if err := clock.Sleep(ctx, adviseEvery); err != nil {
			return err
		}
	}
}

// shares returns what all peers together may have, and what one of them may.
func (a *App) shares() service.Shares {
	p := a.cfg.Peers
	bytes := keyBytes(p.KeyBytes, machineMemory())
	if bytes < p.KeyBytes {
		a.log.Warn().Int64("set", p.KeyBytes).Int64("bytes", bytes).Msg("max-key-bytes is more than a process can hold, and counts as the most that it can; set less")
	}
	const (
		few        = 64       // clients and segments of a small fleet
		fewMounted = 64 << 20 // MiB of its memory: 64 TiB
		nameBytes  = 512      // that a segment may have on average
	)
	return service.Shares{
		Clients:  share.NewRule("clients", "max-clients", int64(p.Clients), p.Share, few),
		Segments: share.NewRule("segments", "max-segments", int64(p.Segments), p.Share, few),
		Mounted:  share.NewRule("MiB of mounted memory", "", int64(metadata.MaxMounted>>20), p.Share, fewMounted),
		Names:    share.NewRule("bytes of names of segments", "max-segments", nameBytes*int64(p.Segments), p.Share, nameBytes*few),
		KeyBytes: share.NewRule("key bytes", "max-key-bytes", bytes, p.Share, bytes/1024),
	}
}

// maxKeyBytes is the most that keys may take: records of objects have 16 GiB of
// addresses (slab.MaxBytes), of which puts leave an eighth free, and pieces take some.
const maxKeyBytes = 12 << 30

// keyBytes returns how much keys may take. set is the setting, 0 for none; memory is that of
// the machine, 0 if it is not known.
func keyBytes(set, memory int64) int64 {
	return min(cmp.Or(set, memory/2, maxKeyBytes), maxKeyBytes)
}

// machineMemory returns how many bytes of memory the machine has, or this process's control
// group if that has less; 0 if that is not known.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0 // not known
	}
	all := int64(info.Totalram) * int64(info.Unit)
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, _ := os.ReadFile(file)
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // it may be "max"
			all = min(all, n)
		}
	}
	return all
}

// gcPercent returns how much garbage may exist, in percent of the live heap: as much as fits
// into minHeap, or Go's default if that is more.
func gcPercent(live uint64) int {
	const most = 2000
	return int(min(most, max(goPercent, minHeap/float64(live)*100-100)))
}
