package drill

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/judge"
)

const (
	hostileFor   = 10 * time.Second
	hostileP99   = time.Second // of puts during an attack
	hostileBytes = 512 << 20   // how much more memory than before the primary may take
	longKeys     = 19_580
	longKeyBytes = 4 << 10
	longKeyBatch = 500 // 2 MiB of them
)

// hostilePeers lets peers take all the resources of the primary that they can. It must stay
// primary, answer its clients, and bound its memory. Then one peer takes its share of
// everything.
func hostilePeers(ctx context.Context, e *Env) {
	if len(e.notices) == 0 || slices.Contains(e.notices, "memory") {
		e.underLoad(ctx)
	}
	if !e.noticed() {
		e.greed(ctx)
	}
}

// underLoad lets peers use as much CPU and memory of the primary as they can.
func (e *Env) underLoad(ctx context.Context) {
	e.episode(ctx, episode{work: &work{exact: true}}, func(ctx context.Context) {
		p := e.working(ctx)
		e.putLongKeys(ctx)
		calm := rss(p.primary)
		for _, a := range attacks(e.Access.Generation) {
			if e.withstands(ctx, p.primary, a, calm); e.noticed() {
				return
			}
			e.result.Rounds++
		}
		_, term := e.primary(ctx, 0)
		e.result.check("no failover", term == p.term, "term %d, before %d", term, p.term)
		e.allLive()
		e.bounded()
	})
}

// putLongKeys puts objects with long keys, so that patterns have much to search and answers
// are large.
func (e *Env) putLongKeys(ctx context.Context) {
	b := e.newBulk()
	defer b.Close()
	keys := []string{repeatedKey}
	for i := range longKeys {
		if keys = append(keys, fmt.Sprintf("%s/%d", strings.Repeat("x", longKeyBytes), i)); len(keys) >= longKeyBatch || i == longKeys-1 {
			do(b.putAll(ctx, keys, bulkSize, client.PutConfig{}))
			keys = keys[:0]
		}
	}
}

// withstands runs an attack on a primary, and measures it. calm is how much memory the primary
// took before all attacks, in bytes.
func (e *Env) withstands(ctx context.Context, primary *cluster.Node, a attack, calm uint64) {
	// This resets the peak, so that the earlier one does not count.
	do(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", primary.PID), []byte("5"), 0))
	address, open, from := primary.RPC, descriptors(primary), e.load.Now()
	if a.at != nil {
		address = a.at(primary)
	}
	e.underAttack(ctx, address, a)
	to := e.load.Now()
	e.connectionsEnd(ctx, primary, open, a.what)
	puts, reads := e.load.p99(from, to, judge.PutStart, judge.PutEnd), e.load.p99(from, to, judge.Get, judge.Exist)
	e.result.check("puts are answered", puts > 0 && puts <= hostileP99, "under %s the p99 of puts was %v, at most %v is expected", a.what, puts, hostileP99)
	most := must(must(procfs.NewProc(primary.PID)).NewStatus()).VmHWM
	e.result.check("memory", most <= calm+hostileBytes, "the primary took %d MiB at most under %s, %d before all attacks; %d more are expected at most", most>>20, a.what, calm>>20, hostileBytes>>20)
	e.did("%s: p99 of puts %v, of reads %v; %d MiB at most, %d before all attacks", a.what, puts.Round(time.Millisecond), reads.Round(time.Millisecond), most>>20, calm>>20)
}

// rss is how much memory a node takes, in bytes.
func rss(n *cluster.Node) uint64 { return must(must(procfs.NewProc(n.PID)).NewStatus()).VmRSS }
